"""Brings a campaign's labelled data from its source into the store, and its hash into the measuring plan.

Whether it fits its model is checked from the headers of its arrays, before anything is measured.
"""

import ast
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from lzma import LZMAError
from math import prod
from pathlib import Path
from typing import IO, Final

from agent.wire.plan import InputSpec, LabelledMetric
from orchestrator.errors import UnreachableError, UsageError
from orchestrator.manifest.campaign import Campaign, DataEntry, ModelEntry
from orchestrator.sources.resolve import CheckedSources, StoredModel, fetch_labelled_data, not_fetched
from orchestrator.sources.store import Store, StoredFile
from orchestrator.sources.web import Web
from runtime.model.graph import Model, Tensor
from runtime.model.reader import load_model

LABELS: Final = "labels"
SOLE_INPUT: Final = "inputs"
SOLE_OUTPUT: Final = "outputs"

_MAGIC: Final = b"\x93NUMPY"
_LENGTH_BYTES: Final = {1: 2, 2: 4, 3: 4}
"""Bytes of the header's length by the major version of the format (numpy.lib.format)."""

_LONGEST_HEADER: Final = 10_000
"""Bytes of a header. numpy's own bound: a longer one is no plain array."""


@dataclass(frozen=True, slots=True)
class ArrayHeader:
    """Shape and type of a stored array. `kind`: numpy's letter, such as `f` (real) or `i` (integer)."""

    shape: tuple[int, ...]
    kind: str


def headers(path: Path) -> dict[str, ArrayHeader]:
    """Return the arrays of a `.npz` by their names. Raises `ValueError` for one that is no plain array."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".npy")]
        found = {}
        for name in names:
            with archive.open(name) as member:
                found[name.removesuffix(".npy")] = _header(member, name)
    return found


def is_arrays(path: Path) -> bool:
    """Whether labelled data is a `.npz`, and no archive of pictures."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith(".npy") for name in archive.namelist())


def misfit(
    model: Model, arrays: Mapping[str, ArrayHeader], inputs: Mapping[str, InputSpec], metric: LabelledMetric
) -> str | None:
    """Why a model cannot be judged by these arrays; None where it can.

    `inputs`: the campaign's rules, whose shapes replace the model's.
    """
    main = model.subgraphs[0]
    outputs = [main.tensors[index] for index in main.outputs]
    if metric.startswith("top"):
        truth, why = _labels_of(arrays, outputs[0], metric)
    else:
        truth, why = _wanted_of(arrays, outputs)
    if truth is None or why is not None:
        return why
    tensors = [main.tensors[index] for index in main.inputs]
    for tensor in tensors:
        name = SOLE_INPUT if tensor.name not in arrays and len(tensors) == 1 else tensor.name
        if name not in arrays:
            there = ", ".join(sorted(set(arrays) - {LABELS, SOLE_OUTPUT})) or "none"
            return f"it has no array for the model's input {tensor.name!r}; there are: {there}"
        why = _misfit_of(arrays[name], truth.shape[0], tensor, inputs.get(tensor.name))
        if why is not None:
            return f"{name!r} {why}"
    return None


def _labels_of(
    arrays: Mapping[str, ArrayHeader], output: Tensor, metric: LabelledMetric
) -> tuple[ArrayHeader | None, str | None]:
    """Return the labels, or why there are none; every answer is among as many as there are classes."""
    labels = arrays.get(LABELS)
    if labels is None:
        return (
            None,
            f"it has no array {LABELS!r}, which {metric} needs; there are: {', '.join(sorted(arrays))}",
        )
    if len(labels.shape) != 1 or labels.kind not in "iu" or labels.shape[0] == 0:
        return None, f"'labels' must be integers of shape [n], n above 0; it is {_words(labels)}"
    classes = prod(output.shape)
    # The classes of an output with an open size are known only where the model runs.
    if int(metric.removeprefix("top")) >= classes and -1 not in (output.shape_signature or ()):
        return None, f"{metric} of a model with {classes} classes: every answer would be right"
    return labels, None


def _wanted_of(
    arrays: Mapping[str, ArrayHeader], outputs: Sequence[Tensor]
) -> tuple[ArrayHeader | None, str | None]:
    """Return the wanted values of the first output, or why some are missing."""
    for tensor in outputs:
        if tensor.name not in arrays and not (len(outputs) == 1 and SOLE_OUTPUT in arrays):
            there = ", ".join(sorted(arrays))
            return None, f"it has no array for the model's output {tensor.name!r}; there are: {there}"
    wanted = arrays.get(outputs[0].name, arrays.get(SOLE_OUTPUT))
    if wanted is None or not wanted.shape or wanted.shape[0] == 0:
        return None, "the wanted outputs must have the shape [n, ...], n above 0"
    return wanted, None


def _misfit_of(array: ArrayHeader, labels: int, tensor: Tensor, spec: InputSpec | None) -> str | None:
    if not array.shape or array.shape[0] != labels:
        return f"is {_words(array)}; there are {labels} samples of the truth"
    asked = spec.shape if spec is not None and spec.shape is not None else tensor.shape
    is_open = asked is tensor.shape and -1 in (tensor.shape_signature or ())
    # Only the counts matter: the runner reshapes a sample, which may lack the batch dimension of 1.
    if not is_open and prod(array.shape[1:]) != prod(asked):
        return (
            f"has samples of {list(array.shape[1:])}; the model's input {tensor.name!r} takes {list(asked)}"
        )
    return None


def _header(member: IO[bytes], name: str) -> ArrayHeader:
    # Six bytes of magic, then the major and the minor version of the format (numpy.lib.format).
    start = member.read(8)
    size = _LENGTH_BYTES.get(start[6]) if start[:6] == _MAGIC and len(start) == 8 else None
    length = int.from_bytes(member.read(size or 0), "little")
    if size is None or length > _LONGEST_HEADER:
        raise ValueError(f"{name} is no plain array")
    try:
        # The header is the text of a dictionary; its `descr` is like `<f4`: byte order, kind, bytes of a
        # number.
        fields = ast.literal_eval(member.read(length).decode("latin-1").strip())
        shape, kind = tuple(int(n) for n in fields["shape"]), str(fields["descr"])[1]
    except (
        ValueError,
        SyntaxError,
        LookupError,
        TypeError,
        ArithmeticError,
        MemoryError,
        RecursionError,
    ) as error:
        raise ValueError(f"{name} is no plain array") from error
    return ArrayHeader(shape, kind)


def _words(array: ArrayHeader) -> str:
    names = {"f": "real numbers", "i": "integers", "u": "integers"}
    return f"{names.get(array.kind, 'of another type')} of shape {list(array.shape)}"


def with_data(
    campaign: Campaign,
    models: Sequence[StoredModel],
    checked: CheckedSources,
    store: Store,
    note: Callable[[str], None],
    web: Web,
) -> tuple[Campaign, tuple[StoredModel, ...]]:
    """Return the campaign whose plans name the labelled data in the store, and its models; `checked`: its
    sources.

    A model whose data cannot be reached becomes `unreachable`. Raises `UsageError` as `resolve_all`, for a
    file that is not a `.npz` with labels, and for one that does not fit its model.
    """
    asked = [(model, model.data) for model in campaign.models if model.data is not None]
    found = fetch_labelled_data(checked.labelled_data, store, note, web)
    sha256_of = {model.id: model.sha256 for model in models}
    planned: dict[str, ModelEntry] = {}
    reasons: dict[str, str] = {}
    for (model, data), file in zip(asked, found, strict=True):
        if isinstance(file, UnreachableError):
            reasons[model.id] = f"labelled data: {file}"
        else:
            require_fit(model, store, sha256_of[model.id], file)
            planned[model.id] = _planned(model, data, file)
    return (
        replace(campaign, models=tuple(planned.get(model.id, model) for model in campaign.models)),
        tuple(_without_data(model, reasons[model.id]) if model.id in reasons else model for model in models),
    )


def require_fit(model: ModelEntry, store: Store, sha256: str, data: StoredFile) -> None:
    """Raise `UsageError` for labelled data that does not fit its model; `sha256`: the model's file."""
    where = f"{model.id}: labelled data {model.data.source if model.data else ''}"
    data_path, model_path = store.path(data.sha256), store.path(sha256) if sha256 else None
    if not is_arrays(data_path):
        # What the pictures say is read where the model runs.
        return
    try:
        arrays = headers(data_path)
    # `zipfile` raises `RuntimeError` for encrypted members, and hands on what the unpacking raises.
    except (OSError, ValueError, EOFError, RuntimeError, zlib.error, LZMAError, zipfile.BadZipFile) as error:
        raise UsageError(f"{where}: {error}") from error
    try:
        parsed = None if model_path is None else load_model(model_path)
    except ValueError:
        # Its cells end with the reader's reason.
        return
    metric = model.data.metric if model.data else "top1"
    why = None if parsed is None else misfit(parsed, arrays, model.inputs, metric)
    if why is not None:
        raise UsageError(f"{where}: {why}")


def _without_data(model: StoredModel, reason: str) -> StoredModel:
    return model if model.unreachable else not_fetched(model.id, model.origin, reason)


def _planned(model: ModelEntry, data: DataEntry, file: StoredFile) -> ModelEntry:
    judged_by = data.planned(file.sha256, file.size_bytes)
    return replace(model, plan=model.plan.model_copy(update={"labelled": judged_by}))
