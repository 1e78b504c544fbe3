"""Samples as arrays: a .npz of inputs with labels, or with the outputs that they should have."""

import math
import zipfile
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.base import Array
from runtime.errors import DataError
from runtime.measure.accuracy.answers import Answer, Detail, Sample
from runtime.measure.accuracy.classification import class_count, classified, places
from runtime.measure.accuracy.zips import names_of_zip

LABELS: Final = "labels"
SOLE_INPUT: Final = "inputs"
SOLE_OUTPUT: Final = "outputs"

_LARGEST_SAMPLE: Final = 1 << 30
"""Bytes of one sample of an array. Chosen: a small archive could otherwise fill the memory."""

Reals = NDArray[np.float64]


def _cosine(y: Reals, r: Reals) -> float:
    scale = float(np.linalg.norm(y) * np.linalg.norm(r))
    return float(y.ravel() @ r.ravel()) / scale if scale else float(np.array_equal(y, r))


METRICS: Final[Mapping[str, tuple[Callable[[Reals, Reals], float], bool]]] = {
    "mae": (lambda y, r: float(np.abs(y - r).mean()), False),
    "rmse": (lambda y, r: float(np.sqrt(np.square(y - r).mean())), False),
    "max_abs": (lambda y, r: float(np.abs(y - r).max()), False),
    "cosine": (_cosine, True),
    "equal": (lambda y, r: float((y == r).mean()), True),
}
"""Figures of an output against the wanted one, of real values, and whether more is better."""


def is_arrays(path: Path) -> bool:
    """Whether a file is a .npz, whatever its name, and no archive of pictures."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    try:
        # Pictures may be many: `zipfile` would hold an entry of each.
        return any(name.endswith(".npy") for name in names_of_zip(path, array("Q")))
    except zipfile.BadZipFile:
        return False


class _Column:
    """The samples of one array of a .npz, read one after the other: memory does not grow with them."""

    def __init__(self, path: Path, name: str, stream: IO[bytes]) -> None:
        self.name, self._stream, self._where = name, stream, f"{path}: {name!r}"
        try:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                # Version 3 differs from 2 in the encoding of field names, which plain numbers do not have.
                read = np.lib.format.read_array_header_2_0
            shape, is_fortran, self.dtype = read(stream)
        except ValueError as error:
            raise DataError(f"{self._where} is no array: {error}") from error
        if self.dtype.hasobject or is_fortran or not shape or min(shape) < 0:
            raise DataError(f"{self._where} is no plain array of samples [n, ...]")
        self.count, self.shape = int(shape[0]), tuple(int(n) for n in shape[1:])
        self._bytes = math.prod(self.shape) * self.dtype.itemsize
        if self._bytes > _LARGEST_SAMPLE:
            raise DataError(f"{self._where}: a sample of {self._bytes} bytes; at most {_LARGEST_SAMPLE}")

    def take(self) -> Array:
        """Return the next sample."""
        try:
            content = self._stream.read(self._bytes)
        except (OSError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(f"{self._where} cannot be read: {error}") from error
        if len(content) != self._bytes:
            raise DataError(f"{self._where} ends before its last sample")
        return np.frombuffer(content, self.dtype).reshape(self.shape)


class Arrays:
    """The arrays of a .npz."""

    def __init__(self, path: Path) -> None:
        """Raise `OSError`, and `DataError` for a file of another kind."""
        self.path, self._stack = path, ExitStack()
        try:
            self._zip = self._stack.enter_context(zipfile.ZipFile(path))
        except zipfile.BadZipFile as error:
            raise DataError(f"{path}: not a .npz file (numpy.savez): {error}") from error
        self.names = [name.removesuffix(".npy") for name in self._zip.namelist() if name.endswith(".npy")]

    def column(self, name: str) -> _Column:
        """Return an array from its first sample on. Raises `DataError`."""
        return _Column(self.path, name, self._stack.enter_context(self._zip.open(f"{name}.npy")))

    def named(self, detail: Detail, sole: str, *, is_sole: bool) -> str:
        """Return the name of a tensor's array: its own, or the general one of a model with a single one."""
        name = str(detail["name"])
        if name in self.names:
            return name
        if is_sole and sole in self.names:
            return sole
        there = ", ".join(self.names) or "no array"
        other = f" or {sole!r}" if is_sole else ""
        raise DataError(f"{self.path}: it has no array {name!r}{other}, but {there}")

    def close(self) -> None:
        """Close the file."""
        self._stack.close()


class ArrayTask:
    """Samples of a .npz. With `labels` they are those of a classifier, else `metric` compares outputs."""

    def __init__(
        self,
        path: Path,
        inputs: Sequence[Detail],
        outputs: Sequence[Detail],
        metric: str | None,
        wanted: Path | None = None,
    ) -> None:
        """`wanted`: the file with the wanted outputs, if it is another one. Raises `DataError`."""
        self._path, self._wanted = path, wanted or path
        self._inputs, self._outputs, self._metric = inputs, outputs, metric
        self._is_labelled = metric is None
        opened = self._open()
        # Opened for its checks alone: a stream cannot go back, so that `samples` opens the files anew.
        opened.close()
        counts = {column.name: column.count for column in (*opened.feeds, *opened.truths)}
        if len(set(counts.values())) != 1 or not min(counts.values()):
            told = ", ".join(f"{name!r} has {count}" for name, count in counts.items())
            raise DataError(f"{path}: as many samples are needed in each array, and at least one: {told}")
        self.count = min(counts.values())
        for detail, column in zip(inputs, opened.feeds, strict=True):
            _check_sample(path, detail, column)
        self.head: Mapping[str, Any]
        if metric is None:
            self.head = {"task": "classification", "best": places(class_count(outputs[:1]))}
        else:
            self.head = {"task": "tensors", "metric": metric, "higher_is_better": METRICS[metric][1]}

    def samples(self, start: int) -> Iterator[Sample]:
        """Yield the samples from this number on."""
        opened = self._open()
        try:
            # From the first one: a member of a zip can only be unpacked from its start.
            for number in range(self.count):
                feeds, truths = opened.take()
                if number >= start:
                    typed = zip(self._inputs, feeds, strict=True)
                    values = tuple(_typed(self._path, detail, value) for detail, value in typed)
                    yield Sample(f"{self._path.name}[{number}]", values, truths)
        finally:
            opened.close()

    def answer(self, sample: Sample, outputs: Sequence[Array]) -> Answer:
        """Return the best classes, or the figure of each output and their mean."""
        if self._metric is None:
            label, classes = int(sample.truth[0]), outputs[0].size
            if not 0 <= label < classes:
                where = f"{self._path}: {sample.name}"
                raise DataError(f"{where} has the label {label}; the model has {classes} classes")
            return classified(sample.name, frozenset({label}), outputs[0])
        figure = METRICS[self._metric][0]
        found = {}
        for detail, y, r in zip(self._outputs, outputs, sample.truth, strict=True):
            if y.size != r.size:
                raise DataError(
                    f"{self._wanted}: a sample of {detail['name']!r} has {r.size} values, the output {y.size}"
                )
            real = _real(detail, y).ravel()
            found[str(detail["name"])] = figure(real, r.astype(np.float64).ravel())
        return {"file": sample.name, "figures": found, "value": float(np.mean(list(found.values())))}

    def _open(self) -> "_Open":
        return _Open(self._path, self._wanted, self._inputs, self._outputs, is_labelled=self._is_labelled)


class _Open:
    """The columns of the inputs and of the truth, side by side."""

    def __init__(
        self,
        path: Path,
        wanted: Path,
        inputs: Sequence[Detail],
        outputs: Sequence[Detail],
        *,
        is_labelled: bool,
    ) -> None:
        given = Arrays(path)
        self._files = [given]
        is_sole = len(inputs) == 1
        self.feeds = [given.column(given.named(d, SOLE_INPUT, is_sole=is_sole)) for d in inputs]
        if is_labelled:
            if LABELS not in given.names:
                raise DataError(f"{path}: it has no array {LABELS!r}")
            self.truths = [given.column(LABELS)]
            if self.truths[0].shape or self.truths[0].dtype.kind not in "iu":
                raise DataError(f"{path}: {LABELS!r} must be integers of shape [n]")
            return
        results = Arrays(wanted)
        self._files.append(results)
        is_sole = len(outputs) == 1
        self.truths = [results.column(results.named(d, SOLE_OUTPUT, is_sole=is_sole)) for d in outputs]

    def take(self) -> tuple[list[Array], list[Array]]:
        """Return the next sample's inputs and truth."""
        return [column.take() for column in self.feeds], [column.take() for column in self.truths]

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


def _check_sample(path: Path, detail: Detail, column: _Column) -> None:
    shape = [int(n) for n in detail["shape"]]
    if int(np.prod(column.shape)) != int(np.prod(shape)):
        raise DataError(
            f"{path}: a sample for {column.name!r} is {list(column.shape)}, the input {detail['name']!r} "
            f"{shape}"
        )
    # No values are needed to see whether the types go together.
    _typed(path, detail, np.empty(0, column.dtype), is_shaped=False)


def _typed(path: Path, detail: Detail, value: Array, *, is_shaped: bool = True) -> Array:
    """Return values of the input's type as they are, and real numbers quantised by the input's parameters."""
    wanted = np.dtype(detail["dtype"])
    scale, zero_point = detail["quantization"]
    made: Array
    if value.dtype == wanted:
        made = value
    elif value.dtype.kind == "f" and wanted.kind in "iu" and scale:
        bounds = np.iinfo(wanted.name)
        rounded = np.rint(value.astype(np.float64) / scale) + zero_point
        made = np.clip(rounded, bounds.min, bounds.max).astype(wanted)
    elif value.dtype.kind == "f" and wanted.kind == "f":
        made = value.astype(wanted)
    else:
        raise DataError(f"{path}: the input {detail['name']!r} takes {wanted}, the data is {value.dtype}")
    return made.reshape([int(n) for n in detail["shape"]]) if is_shaped else made


def _real(detail: Detail, value: Array) -> Reals:
    scale, zero_point = detail["quantization"]
    plain = value.astype(np.float64)
    return (plain - zero_point) * scale if scale else plain
