"""Labelled data: how many samples of known class a model gets right on one delegate."""

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.base import Array, LoadedModel
from runtime.measure.inputs import InputRule, InputSpecNeededError
from runtime.measure.loading import Opener

LABELS: Final = "labels"
SOLE_INPUT: Final = "inputs"
LARGEST_BYTES: Final = 4 << 30
"""Bytes of a file's arrays together, unpacked. Chosen: a small archive could otherwise fill the memory."""


@dataclass(frozen=True, slots=True)
class LabelledSamples:
    """`labels` int64 [n]; `arrays` by the name of the input, each [n, ...]."""

    labels: NDArray[np.int64]
    arrays: Mapping[str, Array]


def load_labelled(path: Path) -> LabelledSamples:
    """Read a `.npz`: `labels` (integers, [n]) and an array [n, ...] per input, or `inputs` for a single one.

    Raises `InputSpecNeededError` for a file of any other form.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > LARGEST_BYTES:
            raise InputSpecNeededError(f"labelled data: {size} bytes unpacked; at most {LARGEST_BYTES}")
        with np.load(path, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputSpecNeededError(f"labelled data: not a .npz file of plain arrays: {error}") from error
    labels = arrays.pop(LABELS, np.empty(0))
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not labels.size:
        raise InputSpecNeededError("labelled data: 'labels' must be integers of shape [n], n above 0")
    for name, array in arrays.items():
        if array.ndim < 1 or len(array) != len(labels):
            shape = "x".join(map(str, array.shape))
            raise InputSpecNeededError(f"labelled data: {name!r} is {shape}; there are {len(labels)} labels")
    return LabelledSamples(labels.astype(np.int64), arrays)


def count_right(
    opener: Opener,
    model_path: str,
    samples: LabelledSamples,
    best: int,
    rules: Mapping[str, InputRule] | None = None,
    on_sample: Callable[[int], None] = lambda _done: None,
) -> int:
    """Return how many samples have their label among the `best` largest values of the model's first output.

    Of equal values the lower class comes first. `on_sample` is called with the number of finished samples.
    Raises what `Opener.open` raises, and `InputSpecNeededError` for data that does not fit the model.
    """
    model = opener.open(model_path, rules).model
    details = model.get_input_details()
    columns = [(int(d["index"]), _column(d, samples, sole=len(details) == 1)) for d in details]
    right = 0
    for number, label in enumerate(samples.labels):
        for index, column in columns:
            model.set_tensor(index, column[number])
        model.invoke()
        right += int(label) in _best_classes(model, best)
        on_sample(number + 1)
    return right


def _best_classes(model: LoadedModel, count: int) -> list[int]:
    values = model.get_tensor(int(model.get_output_details()[0]["index"])).reshape(-1)
    order = np.argsort(-values.astype(np.float64), kind="stable")
    return [int(number) for number in order[:count]]


def _column(detail: Mapping[str, Any], samples: LabelledSamples, *, sole: bool) -> Array:
    """Return the values of one input in its shape and type: [n, *shape of the input]."""
    name = str(detail["name"])
    array = samples.arrays.get(name)
    if array is None and sole:
        array = samples.arrays.get(SOLE_INPUT)
    if array is None:
        have = ", ".join(samples.arrays) or "none"
        raise InputSpecNeededError(f"labelled data: no array for the input {name!r}; there are: {have}")
    shape = tuple(int(n) for n in detail["shape"])
    if array.size != len(array) * int(np.prod(shape)):
        raise InputSpecNeededError(
            f"labelled data: a sample for {name!r} is {list(array.shape[1:])}, the input {list(shape)}"
        )
    return _typed(detail, array).reshape(len(array), *shape)


def _typed(detail: Mapping[str, Any], array: Array) -> Array:
    """Return values of the input's type as they are, and real numbers quantised by the input's parameters."""
    wanted = np.dtype(detail["dtype"])
    if array.dtype == wanted:
        return array
    scale, zero_point = detail["quantization"]
    if array.dtype.kind == "f" and wanted.kind in "iu" and scale:
        bounds = np.iinfo(wanted)
        rounded = np.rint(array.astype(np.float64) / scale) + zero_point
        quantised: Array = np.clip(rounded, bounds.min, bounds.max).astype(wanted)
        return quantised
    if array.dtype.kind == "f" and wanted.kind == "f":
        return array.astype(wanted)
    raise InputSpecNeededError(
        f"labelled data: the input {detail['name']!r} takes {wanted}, the data is {array.dtype}"
    )
