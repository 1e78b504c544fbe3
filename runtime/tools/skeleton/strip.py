"""A `.tflite` file to a skeleton: each large weight becomes a recipe of a few numbers.

The container and the generator are those of `runtime.model.skeleton`. Kept as they are: small constants,
indices and shapes, sparse buffers, buffers with a NaN or a value of 1e30 and more, and *structured* ones
(masks, grids) that deflate below 60 % of their size and below 256 KiB. Biases of convolutions and matrix
products become recipes from 16 bytes on, so that `calibrate` can scale weights and bias together.
"""

import gzip
import itertools
import json
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from runtime.errors import ModelFormatError
from runtime.model.graph import Model, Tensor
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.skeleton import LIMITS, MAGIC, MOMENT, restore_skeleton

MIN_BYTES: Final = 1024
"""Bytes above which a buffer becomes a recipe. Chosen: below, the recipe saves little, and small constants
are often shapes, axes or scalars that the graph depends on."""

MIN_BIAS_BYTES: Final = 16
"""Bytes from which the bias of a layer becomes a recipe, so that it is scaled together with its weights."""

_STRUCTURED_RATIO: Final = 0.60
"""Deflated share of a buffer below which it counts as structured. Chosen: trained weights hardly deflate,
while masks, grids and tables do, and a model may branch on them."""

_STRUCTURED_BYTES: Final = 256 << 10
"""Deflated bytes up to which a structured buffer is kept. Chosen: a larger one would defeat the purpose of a
small file."""

_CODES: Final[Mapping[TensorType, str]] = {
    TensorType.FLOAT32: "f4",
    TensorType.FLOAT16: "f2",
    TensorType.INT8: "i1",
    TensorType.UINT8: "u1",
    TensorType.INT16: "i2",
    TensorType.INT32: "i4",
    TensorType.INT4: "p4",
}
_LIMITS: Final[Mapping[str, float]] = {
    "f4": 3e38, "f2": 65504.0, "i1": 127.0, "u1": 255.0, "i2": 32767.0, "i4": 2.0**31 - 128, "p4": 7.0
}  # fmt: skip
"""Largest size of a scaled value, by code: of each type's values the largest, but 3e38 is just below that of
float32, and "i4" has the largest float32 below 2^31, as the generator clips in single precision."""

LAYERS: Final[Mapping[BuiltinOperator, tuple[int, int]]] = {
    BuiltinOperator.CONV_2D: (1, 2),
    BuiltinOperator.DEPTHWISE_CONV_2D: (1, 2),
    BuiltinOperator.FULLY_CONNECTED: (1, 2),
    BuiltinOperator.TRANSPOSE_CONV: (1, 3),
    BuiltinOperator.CONV_3D: (1, 2),
}
"""Positions of weights and bias among the inputs of a layer."""


@dataclass(slots=True)
class Hole:
    """A buffer that becomes a recipe: where it is, and the moments its replacement will have."""

    buffer: int
    offset: int
    count: int
    code: str
    kind: str
    mean: float
    std: float
    low: float
    high: float

    @property
    def size(self) -> int:
        """The size in bytes of the file."""
        return self.count // 2 if self.code == "p4" else self.count * int(self.code[1])

    def scale(self, factor: float) -> None:
        """Multiply every value by `factor`, within what the type holds."""
        limit = _LIMITS[self.code]
        self.mean, self.std = _single(self.mean * factor), _single(self.std * factor)
        low, high = (float(np.clip(v * factor, -limit, limit)) for v in (self.low, self.high))
        whole = self.code[0] != "f"
        self.low, self.high = (float(np.rint(v)) if whole else _single(v) for v in (low, high))

    def row(self) -> list[Any]:
        """Return the hole's row in the skeleton's header."""
        return [
            self.offset, self.count, self.code, self.kind, self.mean, self.std, self.low, self.high
        ]  # fmt: skip


@dataclass(slots=True)
class Stripped:
    """A model's bytes with the holes that were found in it."""

    data: memoryview
    model: Model
    holes: list[Hole]
    seed: int

    def skeleton(self) -> bytes:
        """Return the bytes of the `.skel` file; equal inputs give equal bytes."""
        header = {"size": len(self.data), "seed": self.seed, "holes": [hole.row() for hole in self.holes]}
        text = json.dumps(header, separators=(",", ":")).encode()
        parts = [MAGIC, struct.pack("<I", len(text)), text]
        position = 0
        for hole in self.holes:
            parts.append(bytes(self.data[position : hole.offset]))
            position = hole.offset + hole.size
        parts.append(bytes(self.data[position:]))
        # Without a time of writing, which would make equal skeletons differ.
        return gzip.compress(b"".join(parts), 9, mtime=0)

    def restored(self) -> bytearray:
        """Return the `.tflite` file that the skeleton restores to."""
        return restore_skeleton(self.skeleton())


def strip(data: bytes | bytearray | memoryview, seed: int = 1) -> Stripped:
    """Find a model's weights. Raises `ModelFormatError` for no model, or weight buffers that overlap."""
    view = memoryview(data).toreadonly()
    model = read_model(view)
    base = _address(view)
    biases = set(_biases(model))
    holes = []
    for buffer, tensors in _users(model).items():
        code = _code(tensors, is_bias=buffer in biases)
        content = tensors[0].data
        if code is not None and content is not None and len(content):
            # Constants are views of the file's bytes: the difference of addresses is the place in the file.
            holes.append(_hole(buffer, _address(content) - base, code, content))
    holes.sort(key=lambda hole: hole.offset)
    for first, second in itertools.pairwise(holes):
        if first.offset + first.size > second.offset:
            raise ModelFormatError(f"buffers {first.buffer} and {second.buffer} overlap in the file")
    return Stripped(view, model, holes, seed)


def _users(model: Model) -> dict[int, list[Tensor]]:
    users: dict[int, list[Tensor]] = defaultdict(list)
    for subgraph in model.subgraphs:
        for tensor in subgraph.tensors:
            if tensor.is_constant:
                users[tensor.buffer].append(tensor)
    return users


def _biases(model: Model) -> Iterator[int]:
    for subgraph in model.subgraphs:
        made_from = {
            o.outputs[0]: o.inputs[0]
            for o in subgraph.operators
            if o.opcode is BuiltinOperator.DEQUANTIZE and o.outputs and o.inputs
        }
        for operator in subgraph.operators:
            _, place = LAYERS.get(operator.opcode, (0, len(operator.inputs)))
            index = operator.inputs[place] if place < len(operator.inputs) else -1
            if index >= 0:
                yield subgraph.tensors[made_from.get(index, index)].buffer


def _code(tensors: list[Tensor], *, is_bias: bool) -> str | None:
    """Return the type code of a buffer that may be replaced, else None."""
    if len({(t.type, t.quantization is None) for t in tensors}) != 1:
        return None
    tensor = tensors[0]
    code = _CODES.get(tensor.type)
    if code is None or tensor.data is None or any(t.sparsity is not None for t in tensors):
        return None
    if code not in ("f4", "f2") and tensor.quantization is None:
        return None
    small_bias = is_bias and code in ("f4", "f2") and len(tensor.data) >= MIN_BIAS_BYTES
    if len(tensor.data) <= MIN_BYTES and not small_bias:
        return None
    if not small_bias and _is_structured(tensor.data):
        return None
    if code in ("f4", "f2") and not (np.abs(_values(tensor.data, code)) < MOMENT).all():
        return None
    return code


def _is_structured(content: memoryview) -> bool:
    packed = len(zlib.compress(content, 1))
    return packed < _STRUCTURED_RATIO * len(content) and packed < _STRUCTURED_BYTES


def _hole(buffer: int, offset: int, code: str, content: memoryview) -> Hole:
    """Return the recipe of the same mean, deviation and extremes.

    It is uniform where the extremes are within two deviations of the mean, else bell-shaped.
    """
    values = _values(content, code)
    mean, std, low, high = (float(v) for v in (values.mean(), values.std(), values.min(), values.max()))
    # Only int32 has values beyond the limit: those that are 2^31 in single precision.
    low, high = (float(np.clip(v, -LIMITS[code], LIMITS[code])) for v in (low, high))
    kind = "u" if max(high - mean, mean - low) < 2.0 * std else "n"
    return Hole(
        buffer, offset, values.size, code, kind, _single(mean), _single(std), _single(low), _single(high)
    )


def _values(content: memoryview, code: str) -> NDArray[np.float64]:
    if code != "p4":
        return np.frombuffer(content, f"<{code}").astype(np.float64)
    packed = np.frombuffer(content, np.uint8)
    # Out of order, which neither moments nor extremes depend on.
    nibbles = np.concatenate([packed & 15, packed >> 4]).astype(np.int16)
    return np.where(nibbles > 7, nibbles - 16, nibbles).astype(np.float64)


def _single(value: float) -> float:
    return float(np.float32(value))


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)
