"""Checks what is said of inputs, and brings users' own into the store, each as a `.npy` that fits its input.

Everything that can be wrong with a name, a shape or a file is found here, before anything is measured, and
told with the file and the reason: agents read plain arrays that fit.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from agent.wire.bounded import MAX_INPUT_SETS
from agent.wire.plan import INPUT_SETS, InputData, InputSpec
from orchestrator.errors import UnreachableError, UsageError
from orchestrator.manifest.campaign import Campaign, InputSource, ModelEntry
from orchestrator.manifest.problems import suggestion
from orchestrator.results.format import counted
from orchestrator.sources.files import open_source
from orchestrator.sources.resolve import StoredModel, not_fetched
from orchestrator.sources.store import Store, wrong_hash
from orchestrator.sources.web import Web
from runtime.common.installation import install_command
from runtime.model.graph import Tensor
from runtime.model.schema import TensorType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]

MOST_PIXELS: Final = 50_000_000
"""Pixels of a picture, at most. Chosen: no model takes a quarter of it, and a small file can hold a hundred
megapixels that fill the memory."""

_RAW: Final = (".bin", ".raw")
"""Ends of the names of files of raw bytes: no other file can be told to be meant as an input."""

_NPY: Final = b"\x93NUMPY"
_ZIP: Final = b"PK\x03\x04"
_IMAGES: Final = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"BM", b"GIF8", b"RIFF")
"""How files of pictures begin: JPEG, PNG, BMP, GIF, WebP."""

_COLOURS: Final = {1: "L", 3: "RGB"}


def with_inputs(
    campaign: Campaign,
    models: Sequence[StoredModel],
    base_dir: Path,
    store: Store,
    note: Callable[[str], None],
    web: Web,
) -> tuple[Campaign, tuple[StoredModel, ...]]:
    """Return the campaign whose inputs name their data in the store, and its models.

    An integer input without a range gets that which its use in the graph tells. A model whose data cannot be
    reached becomes `unreachable`. Raises `UsageError` for a name that is no input, and for a shape or a file
    that does not fit its input.
    """
    stored = {model.id: model for model in models}
    planned = {}
    for entry in campaign.models:
        found = stored[entry.id]
        if found.sha256 and not found.problem:
            _require_inputs(entry, found.inputs)
            ranged = _ranged(entry, found.ranges, note)
            try:
                planned[entry.id] = _Reading(ranged, base_dir, store, note, web).planned(found.inputs)
            except UnreachableError as error:
                stored[entry.id] = not_fetched(entry.id, found.origin, f"data of an input: {error}")
    entries = tuple(planned.get(entry.id, entry) for entry in campaign.models)
    return replace(campaign, models=entries), tuple(stored[model.id] for model in models)


def _ranged(
    entry: ModelEntry, ranges: Mapping[str, tuple[int, int]], note: Callable[[str], None]
) -> ModelEntry:
    """Return the entry with ranges for integer inputs without one, where their use in the graph tells it."""
    inputs = dict(entry.inputs)
    for name, (low, high) in ranges.items():
        spec = inputs.get(name, InputSpec())
        if spec.low is None and spec.high is None and name not in entry.own_inputs:
            note(f"{entry.id}: input {name!r} gets values {low}..{high}, by its use in the graph")
            inputs[name] = spec.model_copy(update={"low": float(low), "high": float(high)})
    return replace(entry, inputs=inputs)


def _require_inputs(entry: ModelEntry, tensors: Mapping[str, Tensor]) -> None:
    """Raise `UsageError` for a name that is no input of the model, and for a shape of another rank."""
    for name, spec in entry.inputs.items():
        if name not in tensors:
            hint = suggestion(name, tensors) or "; it has none"
            raise UsageError(f"{entry.id}: {name!r} is not an input of the model{hint}")
        declared = tensors[name].shape_signature or tensors[name].shape
        # Whether another size of a dimension can run is known where the model is opened.
        if spec.shape is not None and declared and len(spec.shape) != len(declared):
            raise UsageError(
                f"{entry.id}: input {name!r} has {counted(len(declared), 'dimension')}, {list(declared)}; "
                f"{list(spec.shape)} has {len(spec.shape)}"
            )


class _Reading:
    """Reads the data of one model's inputs."""

    def __init__(
        self, entry: ModelEntry, base_dir: Path, store: Store, note: Callable[[str], None], web: Web
    ) -> None:
        self._entry, self._base_dir, self._store, self._note, self._web = entry, base_dir, store, note, web

    def planned(self, tensors: Mapping[str, Tensor]) -> ModelEntry:
        """Return the entry with data in its inputs; `tensors`: the model's inputs by name."""
        entry = self._entry
        if not entry.own_inputs:
            return entry
        inputs, most = dict(entry.inputs), 0
        for name, source in entry.own_inputs.items():
            samples = self._samples(tensors[name], source)
            most = max(most, len(samples))
            inputs[name] = inputs[name].model_copy(
                update={"shape": samples.shape[1:], "data": self._stored(samples, name)}
            )
        if most > MAX_INPUT_SETS and entry.input_sets is None:
            raise UsageError(
                f"{entry.id}: {most} samples of inputs; at most {MAX_INPUT_SETS}, or set input_sets"
            )
        sets = entry.input_sets or max(INPUT_SETS, most)
        plan = entry.plan.model_copy(update={"input_sets": sets})
        return replace(entry, inputs=inputs, plan=plan)

    def _stored(self, samples: Array, name: str) -> InputData:
        import numpy as np  # noqa: PLC0415  # heavy, and only campaigns with own inputs need it

        content = io.BytesIO()
        np.save(content, samples, allow_pickle=False)
        content.seek(0)
        found = self._store.put(content, f"{self._entry.id}: data of input {name!r}")
        return InputData(sha256=found.sha256, size_bytes=found.size_bytes)

    def _samples(self, tensor: Tensor, source: InputSource) -> Array:
        """Return all samples of an input, [samples, *shape]."""
        import numpy as np  # noqa: PLC0415

        given = self._entry.inputs[tensor.name].shape
        found: list[Array] = []
        forms: dict[str, str] = {}
        for one in source.sources:
            where = f"{self._entry.id}: input {tensor.name!r}: {one}"
            content, is_raw = self._content(one, source.sha256)
            form, samples = _read(content, is_raw, tensor, given, where)
            forms.setdefault(form, one)
            found.append(samples)
        if len(forms) > 1:
            mixed = ", ".join(f"{one} is {form}" for form, one in forms.items())
            raise UsageError(f"{self._entry.id}: input {tensor.name!r}: mixed formats: {mixed}")
        if len({one.shape[1:] for one in found}) > 1:
            shapes = ", ".join(str(list(one.shape[1:])) for one in found)
            raise UsageError(f"{self._entry.id}: input {tensor.name!r}: samples of several shapes: {shapes}")
        return np.concatenate(found)

    def _content(self, source: str, pinned: str | None) -> tuple[bytes, bool]:
        """Return a file's bytes, and whether its name says that they are raw."""
        if source.startswith("https:"):
            self._note(f"downloading {source}")
            with self._web.open(source, self._store.max_bytes, source) as body:
                content, name = body.read_all(), source
        else:
            path = self._base_dir / source
            with open_source(path, self._store.max_bytes) as (file, _):
                # Of a link, the name of the file that it leads to.
                content, name = file.read(), path.resolve().name
        if pinned is not None and sha256(content).hexdigest() != pinned:
            raise wrong_hash(source, pinned, sha256(content).hexdigest())
        return content, name.endswith(_RAW)


def _read(
    content: bytes, is_raw: bool, tensor: Tensor, given: tuple[int, ...] | None, where: str
) -> tuple[str, Array]:
    """Return the form of a file in words, and its samples in the input's shape and type."""
    import numpy as np  # noqa: PLC0415

    dtype = _dtype(tensor, where)
    if is_raw:
        shape = _known_shape(tensor, given, where)
        size = prod(shape) * dtype.itemsize
        if not content or not size or len(content) % size:
            raise UsageError(f"{where}: {len(content)} bytes; a sample of {dtype} {list(shape)} has {size}")
        return "raw bytes", np.frombuffer(content, dtype).reshape(-1, *shape)
    if content.startswith(_IMAGES):
        return "a picture", _picture(content, tensor, _known_shape(tensor, given, where), dtype, where)
    if content.startswith(_NPY):
        return "npy", _fitted(_npy(content, where), tensor, given, dtype, where)
    if content.startswith(_ZIP):
        return "npz", _fitted(_member(content, tensor.name, where), tensor, given, dtype, where)
    raise UsageError(
        f"{where}: neither .npy nor .npz nor a picture; raw bytes need a name that ends with "
        f"{' or '.join(_RAW)}"
    )


def _dtype(tensor: Tensor, where: str) -> Any:
    import numpy as np  # noqa: PLC0415

    if tensor.type not in _TYPES:
        raise UsageError(f"{where}: an input of type {tensor.type.name.lower()} is not read from files")
    return np.dtype(tensor.type.name.lower())


_TYPES: Final = frozenset({
    TensorType.FLOAT32, TensorType.FLOAT16, TensorType.FLOAT64, TensorType.BOOL, TensorType.INT8,
    TensorType.INT16, TensorType.INT32, TensorType.INT64, TensorType.UINT8, TensorType.UINT16,
    TensorType.UINT32, TensorType.UINT64,
})  # fmt: skip
"""Types of inputs that files hold; numpy has them by the same names."""


def _known_shape(tensor: Tensor, given: tuple[int, ...] | None, where: str) -> tuple[int, ...]:
    """Return the shape of an input; the file tells nothing of it."""
    shape = tensor.shape if given is None else given
    if given is None and -1 in (tensor.shape_signature or ()):
        raise UsageError(
            f"{where}: the input has open sizes {list(tensor.shape_signature or ())}; write `shape: [...]`"
        )
    return tuple(shape)


def _npy(content: bytes, where: str) -> Array:
    import numpy as np  # noqa: PLC0415

    try:
        found: Array = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise UsageError(f"{where}: not a plain .npy array: {error}") from error
    return found


def _member(content: bytes, name: str, where: str) -> Array:
    """Return the array of an archive that has the input's name, or its only one."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = [one.removesuffix(".npy") for one in archive.namelist() if one.endswith(".npy")]
            chosen = name if name in names else names[0] if len(names) == 1 else None
            if chosen is None:
                raise UsageError(f"{where}: no array {name!r}; it has {', '.join(names) or 'none'}")
            return _npy(archive.read(f"{chosen}.npy"), where)
    except (zipfile.BadZipFile, NotImplementedError, OSError) as error:
        raise UsageError(f"{where}: not a .npz archive: {error}") from error


def _fitted(found: Array, tensor: Tensor, given: tuple[int, ...] | None, dtype: Any, where: str) -> Array:
    """Return an array as [samples, *shape]: it is one sample or several, or has several in a batch of one."""
    if found.dtype != dtype:
        raise UsageError(f"{where}: is {found.dtype}; the model takes {dtype}")
    wanted = tuple(given if given is not None else tensor.shape_signature or tensor.shape)
    # As a single sample, then as several.
    for shape, samples in ((found.shape, found[None]), (found.shape[1:], found)):
        if _matches(shape, wanted) and samples.size:
            return samples
    if wanted[:1] == (1,) and _matches(found.shape[1:], wanted[1:]) and found.size:
        # Samples without the batch dimension of 1, which each of them gets.
        return found[:, None]
    raise UsageError(f"{where}: is {list(found.shape)}; the model takes {list(wanted)}, or several of these")


def _matches(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    return len(shape) == len(wanted) and all(w in (-1, n) for n, w in zip(shape, wanted, strict=True))


def _picture(content: bytes, tensor: Tensor, shape: tuple[int, ...], dtype: Any, where: str) -> Array:
    """Return a picture, scaled to the input's size and normalised as LiteRT's evaluation tools do."""
    import numpy as np  # noqa: PLC0415

    layout = next(_layouts(shape), None)
    if layout is None or dtype.name not in _NORMALISED:
        raise UsageError(
            f"{where}: a picture is for an input [1, height, width, 1 or 3] or [1, 1 or 3, height, width] of "
            f"type float32, uint8 or int8; {tensor.name!r} is {dtype} {list(shape)}"
        )
    height, width, channels, is_planar = layout
    pixels = _pixels(content, (width, height), _COLOURS[channels], where).reshape(height, width, channels)
    values = _NORMALISED[dtype.name](pixels.astype(np.float32)).astype(dtype)
    # One sample, of a batch of one.
    return (values.transpose(2, 0, 1) if is_planar else values)[None, None]


_NORMALISED: Final[dict[str, Callable[[Array], Array]]] = {
    "float32": lambda pixels: (pixels - 127.5) / 127.5,
    "uint8": lambda pixels: pixels,
    "int8": lambda pixels: pixels - 128,
}
"""What LiteRT's evaluation tools do with pixels 0..255, by the input's type."""


def _layouts(shape: tuple[int, ...]) -> Iterator[tuple[int, int, int, bool]]:
    """Yield height, width, channels, and whether these come first."""
    if len(shape) == 4 and shape[0] == 1:  # a batch of one picture
        # LiteRT's usual layout goes first, where a shape such as [1, 3, 224, 3] fits both.
        if shape[3] in _COLOURS:
            yield shape[1], shape[2], shape[3], False
        if shape[1] in _COLOURS:
            yield shape[2], shape[3], shape[1], True


def _pixels(content: bytes, size: tuple[int, int], colours: str, where: str) -> Array:
    import numpy as np  # noqa: PLC0415

    try:
        from PIL import Image, UnidentifiedImageError  # noqa: PLC0415  # of an extra
    except ImportError as error:
        raise UsageError(f"{where}: pictures need Pillow: {install_command('pictures')}") from error
    try:
        with Image.open(io.BytesIO(content)) as picture:
            # `open` has read the header alone; the pixels are decoded by `convert`.
            if prod(picture.size) > MOST_PIXELS:
                width, height = picture.size
                raise UsageError(f"{where}: {width} x {height} pixels; at most {MOST_PIXELS}")
            return np.asarray(picture.convert(colours).resize(size, Image.Resampling.BILINEAR))
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        # Pillow raises `SyntaxError` for a broken PNG.
        raise UsageError(f"{where}: not a picture that can be decoded: {error}") from error
