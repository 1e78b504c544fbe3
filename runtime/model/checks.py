"""The checks that a parsed model must pass before it is planned or run.

They are those of LiteRT's `core/tools/verifier.cc` and what that leaves out: tensor indices, negative
dimensions, quantisation parameters, and signature entries.
"""

import math
import struct
from itertools import pairwise

from runtime.errors import ModelFormatError
from runtime.model.graph import Model, Operator, Quantization, Signature, Sparsity, Subgraph, Tensor
from runtime.model.schema import TensorType

MAX_TENSOR_ELEMENTS = (1 << 31) - 1
"""Elements of a tensor. LiteRT counts them in int32: more would overflow there. Dimensions of 0 count as 1,
so that a batch of 0 cannot hide the overflow of the others."""

MAX_RANK = 64
"""Dimensions of a tensor, as many as numpy 2 arrays have; LiteRT's kernels stop at 8."""

_BITS = {
    TensorType[name]: bits
    for bits, names in {
        2: "INT2",
        4: "INT4 UINT4",
        8: "INT8 UINT8 BOOL FLOAT8_E4M3FN FLOAT8_E5M2",
        16: "FLOAT16 BFLOAT16 INT16 UINT16",
        32: "FLOAT32 INT32 UINT32",
        64: "FLOAT64 INT64 UINT64 COMPLEX64",
        128: "COMPLEX128",
    }.items()
    for name in names.split()
}
"""Bits of an element in the file, for the types that have a fixed size."""


def tensor_bytes(tensor_type: TensorType, shape: tuple[int, ...]) -> int | None:
    """Return the bytes of a dense tensor in the file's packing, None for types without a fixed size."""
    bits = _BITS.get(tensor_type)
    return None if bits is None else (math.prod(shape) * bits + 7) // 8


def check_model(model: Model) -> None:
    """Raise `ModelFormatError` naming the subgraph, the operator and the tensor."""
    if not model.subgraphs:
        raise ModelFormatError("model: no subgraph")
    for subgraph in model.subgraphs:
        where = f"subgraph {subgraph.index}"
        for tensor in subgraph.tensors:
            _check_tensor(tensor, len(subgraph.tensors), f"{where}, tensor {tensor.index} {tensor.name!r}")
        _check_indices(subgraph, where)
        _check_order(subgraph, where)
    _check_signatures(model)


def _check_tensor(tensor: Tensor, count: int, where: str) -> None:
    _check_shape(tensor, where)
    if tensor.quantization is not None:
        _check_quantization(tensor.quantization, tensor.shape, count, where)
    if tensor.sparsity is not None:
        _check_sparsity(tensor.sparsity, tensor.shape, where)
    if tensor.data is None:
        return
    if tensor.is_variable:
        raise ModelFormatError(f"{where}: a variable cannot have constant data")
    if tensor.type is TensorType.STRING:
        _check_strings(tensor.data, where)
        return
    expected = tensor_bytes(tensor.type, tensor.shape)
    if tensor.sparsity is None and expected is not None and len(tensor.data) != expected:
        raise ModelFormatError(
            f"{where}: {tensor.type.name} of shape {list(tensor.shape)} takes {expected} bytes, "
            f"its buffer has {len(tensor.data)}"
        )


def _check_shape(tensor: Tensor, where: str) -> None:
    if len(tensor.shape) > MAX_RANK:
        raise ModelFormatError(f"{where}: rank {len(tensor.shape)} is above {MAX_RANK}")
    elements = 1
    for dim in tensor.shape:
        if dim < 0:
            raise ModelFormatError(f"{where}: shape {list(tensor.shape)} has a negative dimension")
        elements *= max(dim, 1)
        if elements > MAX_TENSOR_ELEMENTS:
            raise ModelFormatError(f"{where}: shape {list(tensor.shape)} has more than 2^31 elements")
    signature = tensor.shape_signature
    if signature and len(signature) != len(tensor.shape):
        raise ModelFormatError(
            f"{where}: shape_signature {list(signature)} does not fit {list(tensor.shape)}"
        )


def _check_quantization(q: Quantization, shape: tuple[int, ...], count: int, where: str) -> None:
    # The file has int64, LiteRT's parameters int32.
    if not all(-(1 << 31) <= z < 1 << 31 for z in q.zero_points):
        raise ModelFormatError(f"{where}: a zero point is outside 32 bits")
    if q.is_custom:
        return
    if q.blocks is not None:
        if not (
            0 <= q.blocks.scales < count and -1 <= q.blocks.zero_points < count and q.blocks.block_size >= 0
        ):
            raise ModelFormatError(f"{where}: block quantisation refers outside its subgraph: {q.blocks}")
        return
    if len(q.zero_points) != len(q.scales):
        raise ModelFormatError(f"{where}: {len(q.scales)} scales with {len(q.zero_points)} zero points")
    # A scalar has the default, 0, without having a dimension.
    if not 0 <= q.quantized_dimension < max(len(shape), 1):
        raise ModelFormatError(f"{where}: quantized_dimension {q.quantized_dimension} of rank {len(shape)}")
    if len(q.scales) > 1 and (not shape or len(q.scales) != shape[q.quantized_dimension]):
        raise ModelFormatError(
            f"{where}: {len(q.scales)} scales along dimension {q.quantized_dimension} of {list(shape)}"
        )
    if not all(math.isfinite(s) for s in q.scales):
        raise ModelFormatError(f"{where}: a scale is not finite")


def _check_sparsity(sparsity: Sparsity, shape: tuple[int, ...], where: str) -> None:
    rank, blocks = len(shape), len(sparsity.block_map)
    order = sparsity.traversal_order
    if sorted(order[:rank]) != list(range(rank)) or sorted(order[rank:]) != list(range(rank, rank + blocks)):
        raise ModelFormatError(f"{where}: traversal_order {list(order)} is not a permutation")
    if len(sparsity.dimensions) != rank + blocks or not all(0 <= d < rank for d in sparsity.block_map):
        raise ModelFormatError(f"{where}: sparse dimensions do not match the shape {list(shape)}")
    parents = 1
    for dimension in sparsity.dimensions:
        if dimension.segments is None or dimension.indices is None:
            parents *= max(dimension.dense_size, 0)
        else:
            ascending = all(a <= b for a, b in pairwise(dimension.segments))
            if len(dimension.segments) != parents + 1 or not ascending or dimension.segments[0] < 0:
                raise ModelFormatError(f"{where}: sparse segments are not {parents + 1} ascending offsets")
            if dimension.segments[-1] != len(dimension.indices):
                raise ModelFormatError(f"{where}: sparse segments end at {dimension.segments[-1]}")
            parents = len(dimension.indices)
        if parents > MAX_TENSOR_ELEMENTS:
            raise ModelFormatError(f"{where}: more than 2^31 sparse elements")


def _check_strings(data: memoryview, where: str) -> None:
    size = len(data)
    count = struct.unpack_from("<i", data)[0] if size >= 4 else -1
    # One word for the count, then one offset more than strings: the last is the end.
    header = 4 * (count + 2)
    if count < 0 or header > size:
        raise ModelFormatError(f"{where}: a string buffer of {size} bytes cannot hold {count} strings")
    offsets = struct.unpack_from(f"<{count + 1}i", data, 4)
    ascending = all(a <= b for a, b in pairwise(offsets))
    if offsets[0] != header or offsets[-1] != size or not ascending:
        raise ModelFormatError(f"{where}: string offsets do not ascend from {header} to {size}")


def _check_indices(subgraph: Subgraph, where: str) -> None:
    count = len(subgraph.tensors)
    for kind, indices in (("inputs", subgraph.inputs), ("outputs", subgraph.outputs)):
        if not all(0 <= i < count for i in indices):
            raise ModelFormatError(f"{where}: {kind} {list(indices)} refer outside its {count} tensors")
    for op in subgraph.operators:
        optional = (*op.inputs, *op.intermediates)
        if not all(-1 <= i < count for i in optional) or not all(0 <= i < count for i in op.outputs):
            raise ModelFormatError(f"{_operator(where, op)}: refers outside the subgraph's {count} tensors")


def _check_order(subgraph: Subgraph, where: str) -> None:
    """Raise unless every value is computed before it is used, and computed once; so there is no cycle."""
    fixed = {t.index for t in subgraph.tensors if t.data is not None or t.is_variable or t.external_buffer}
    fixed.update(subgraph.inputs)
    ready = set(fixed)
    for op in subgraph.operators:
        for i in op.inputs:
            if i >= 0 and i not in ready:
                name = subgraph.tensors[i].name
                raise ModelFormatError(f"{_operator(where, op)}: input {i} {name!r} has no value yet")
        for i in op.outputs:
            if i in ready:
                kind = "a constant, a variable or an input" if i in fixed else "made by an earlier operator"
                raise ModelFormatError(
                    f"{_operator(where, op)}: output {i} {subgraph.tensors[i].name!r} is already {kind}"
                )
        ready.update(op.outputs)
    for i in subgraph.outputs:
        if i not in ready:
            raise ModelFormatError(f"{where}: output {i} {subgraph.tensors[i].name!r} is made by no operator")


def _operator(where: str, op: Operator) -> str:
    return f"{where}, operator {op.index} {op.name}"


def _check_signatures(model: Model) -> None:
    keys: set[str] = set()
    for signature in model.signatures:
        where = f"signature {signature.key!r}"
        if signature.key in keys:
            raise ModelFormatError(f"{where}: defined twice")
        keys.add(signature.key)
        _check_signature(signature, model, where)


def _check_signature(signature: Signature, model: Model, where: str) -> None:
    if signature.subgraph_index >= len(model.subgraphs):
        raise ModelFormatError(f"{where}: subgraph {signature.subgraph_index} of {len(model.subgraphs)}")
    count = len(model.subgraphs[signature.subgraph_index].tensors)
    for name, index in (*signature.inputs, *signature.outputs):
        # Unsigned in the file, so that there is no lower bound to check.
        if index >= count:
            raise ModelFormatError(f"{where}: {name!r} is tensor {index} of {count}")
