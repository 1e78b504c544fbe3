"""LiteRT's dictionaries about tensors, operators and signatures, and its checks of arguments."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime.errors import NOT_FOUND, StatusError
from runtime.model.graph import BlockQuantization, Model, Operator, Quantization, Signature, Subgraph, Tensor
from runtime.model.schema import TensorType
from runtime.ops.support.value import Array, Shape, constant_array, dtype_of

_PACKED = frozenset({TensorType.INT4, TensorType.UINT4, TensorType.INT2})


def tensor_details(tensor: Tensor, shape: Shape, subgraph: Subgraph) -> dict[str, Any]:
    """Return `Interpreter`'s dictionary for a tensor of `subgraph` whose current shape is `shape`."""
    current = np.array(shape, np.int32)
    return {
        "name": tensor.name,
        "index": tensor.index,
        "shape": current,
        "shape_signature": np.array(tensor.shape_signature, np.int32) if tensor.shape_signature else current,
        "dtype": public_dtype(tensor),
        "quantization": _per_tensor(tensor.quantization),
        "quantization_parameters": _quantization_parameters(tensor.quantization, subgraph),
        "sparsity_parameters": _sparsity_parameters(tensor),
    }


def operator_details(subgraph: Subgraph, operator: Operator) -> dict[str, Any]:
    """Return the dictionary that `Interpreter._get_ops_details` gives for an operator."""

    def types(indices: tuple[int, ...]) -> list[Any]:
        return [public_dtype(subgraph.tensors[i]) for i in indices if i != -1]

    return {
        "index": operator.index,
        "op_name": operator.name,
        "inputs": np.array(operator.inputs, np.int32),
        "outputs": np.array(operator.outputs, np.int32),
        "operand_types": types(operator.inputs),
        "result_types": types(operator.outputs),
    }


def public_dtype(tensor: Tensor) -> Any:
    """Return the numpy type in which a caller sets and gets the tensor: `bytes_` for strings."""
    dtype = dtype_of(tensor.type)
    return np.bytes_ if dtype is None or tensor.type is TensorType.STRING else dtype.type


def accepted(tensor: Tensor, shape: Shape, value: npt.ArrayLike) -> Array:
    """`value` as the array to copy in. Raises ValueError where type or shape differ, naming both."""
    array = np.asarray(value)
    index, name = tensor.index, tensor.name
    if tensor.type is TensorType.STRING and array.dtype.kind in "SUO":
        array = _as_bytes(array)
    found = "STRING" if array.dtype.kind in "SUO" else array.dtype.name.upper()
    expected = dtype_of(tensor.type)
    # Either byte order will do, as copying converts it.
    same = expected is not None and array.dtype == expected.newbyteorder(array.dtype.byteorder)
    if not same and tensor.type in _PACKED:
        raise ValueError(
            f"Cannot set tensor: Expected a numpy array of {expected} for {tensor.type.name} input {index}, "
            f"name: {name}, but got {found}"
        )
    if not same:
        raise ValueError(
            f"Cannot set tensor: Got value of type {found} but expected type "
            f"{tensor.type.name} for input {index}, name: {name} "
        )
    _check_dimensions(array.shape, shape, index)
    return array


def _as_bytes(array: Array) -> Array:
    flat = np.empty(array.size, np.object_)
    for i, item in enumerate(array.reshape(-1).tolist()):
        if not isinstance(item, str | bytes):
            raise ValueError(f"Cannot set tensor: {type(item).__name__} in an array of strings")
        flat[i] = item.encode() if isinstance(item, str) else item
    return flat.reshape(array.shape)


def _check_dimensions(got: Shape, expected: Shape, index: int) -> None:
    if len(got) != len(expected):
        raise ValueError(
            "Cannot set tensor: Dimension mismatch. "
            f"Got {len(got)} but expected {len(expected)} for input {index}."
        )
    for dimension, (a, b) in enumerate(zip(got, expected, strict=True)):
        if a != b:
            raise ValueError(
                "Cannot set tensor: Dimension mismatch. "
                f"Got {a} but expected {b} for dimension {dimension} of input {index}."
            )


def check_resize(tensor: Tensor, current: Shape, size: Shape, *, strict: bool) -> None:
    """Raise RuntimeError for a shape that `resize_tensor_input` refuses."""
    if any(d < 0 for d in size):
        raise RuntimeError(f"Attempting to resize tensor {tensor.index} to {list(size)}: negative dimension.")
    if not strict:
        return
    signature = tensor.shape_signature or tensor.shape
    if len(size) != len(signature):
        raise RuntimeError(f"Attempting to resize tensor {tensor.index} to rank {len(size)} strictly.")
    for dimension, (known, now, wanted) in enumerate(zip(signature, current, size, strict=True)):
        if known != -1 and now != wanted:
            raise RuntimeError(
                f"Attempting to resize dimension {dimension} of tensor {tensor.index} with value {now} to "
                f"{wanted}. ResizeInputTensorStrict only allows mutating unknown dimensions identified by -1."
            )


def _per_tensor(q: Quantization | None) -> tuple[float, int]:
    # As LiteRT's `quantization`: several scales are told by `quantization_parameters` alone.
    if q is None or q.blocks is not None or len(q.scales) != 1:
        return (0.0, 0)
    return (q.scales[0], q.zero_points[0])


def _quantization_parameters(q: Quantization | None, subgraph: Subgraph) -> dict[str, Any]:
    if q is not None and q.blocks is not None:
        return _block_parameters(q, q.blocks, subgraph)
    return {
        "scales": np.array(q.scales if q else (), np.float32),
        "zero_points": np.array(q.zero_points if q else (), np.int32),
        "quantized_dimension": q.quantized_dimension if q else 0,
        "block_size": 0,
    }


def _block_parameters(q: Quantization, blocks: BlockQuantization, subgraph: Subgraph) -> dict[str, Any]:
    """Return the constants with one scale for each block, flat; empty for several quantised dimensions."""
    several = bool(blocks.quantized_dimensions)

    def values(index: int, default: type) -> Array:
        found = None if several or index < 0 else constant_array(subgraph.tensors[index])
        # A copy, because constants are views into the file.
        return np.zeros(0, default) if found is None else found.reshape(-1).copy()

    return {
        "scales": values(blocks.scales, np.float32 if several else np.float16),
        "zero_points": values(blocks.zero_points, np.int32),
        "quantized_dimension": 0 if several else q.quantized_dimension,
        "block_size": 0 if several else blocks.block_size,
    }


def _sparsity_parameters(tensor: Tensor) -> dict[str, Any]:
    """LiteRT's form of a sparse encoding: format 0 is a dense dimension, format 1 a compressed one."""
    sparsity = tensor.sparsity
    if sparsity is None:
        return {}
    return {
        "traversal_order": np.array(sparsity.traversal_order, np.int32),
        "block_map": np.array(sparsity.block_map, np.int32),
        "dim_metadata": [
            {"format": 0, "dense_size": dimension.dense_size}
            if dimension.segments is None
            else {
                "format": 1,
                "array_segments": np.array(dimension.segments, np.int32),
                "array_indices": np.array(dimension.indices, np.int32),
            }
            for dimension in sparsity.dimensions
        ],
    }


PLACEHOLDER_KEY = "<placeholder signature>"
"""The key that LiteRT gives the signature of a model without one."""


def ordered_signatures(model: Model) -> tuple[Signature, ...]:
    """Return the model's signatures in the order of their subgraphs' tensors, or one made of tensor names."""
    if not model.signatures:
        primary = model.subgraphs[0]
        return (
            Signature(
                PLACEHOLDER_KEY,
                0,
                tuple((primary.tensors[i].name, i) for i in primary.inputs),
                tuple((primary.tensors[i].name, i) for i in primary.outputs),
            ),
        )
    found = []
    for signature in model.signatures:
        subgraph = model.subgraphs[signature.subgraph_index]
        inputs = sorted(signature.inputs, key=lambda pair: _place(subgraph.inputs, pair[1]))
        outputs = sorted(signature.outputs, key=lambda pair: _place(subgraph.outputs, pair[1]))
        found.append(Signature(signature.key, signature.subgraph_index, tuple(inputs), tuple(outputs)))
    return tuple(found)


def _place(order: Sequence[int], index: int) -> int:
    return order.index(index) if index in order else len(order)


def names(pairs: Sequence[tuple[str, int]]) -> list[str]:
    """Return the names of (name, tensor index) pairs, in order."""
    return [name for name, _ in pairs]


def tensor_named(kind: str, pairs: Sequence[tuple[str, int]], name: str) -> int:
    """Return the tensor of an input or output. Raises `StatusError`, beginning with `kind`."""
    for found, index in pairs:
        if found == name:
            return index
    raise StatusError(f"{kind} tensor not found: {name}", NOT_FOUND)
