"""The frozen graph that the reader returns; names are those of schema.fbs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime.model.external import ExternalBuffer
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.source import ModelBytes


@dataclass(frozen=True, slots=True)
class BlockQuantization:
    """Scales kept in tensors of the same subgraph: one per block, or one per slice of several dimensions.

    `zero_points` is -1 where there are none; `quantized_dimensions` is empty for blockwise parameters.
    """

    scales: int
    zero_points: int
    block_size: int
    quantized_dimensions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Quantization:
    """Affine: real = scale * (q - zero_point); one pair, or one per slice of `quantized_dimension`.

    Where `blocks` is set it replaces the other fields; where `is_custom` is set the rule is not known.
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    quantized_dimension: int = 0
    blocks: BlockQuantization | None = None
    is_custom: bool = False


@dataclass(frozen=True, slots=True)
class SparseDimension:
    """One stored dimension of a sparse tensor: `dense_size` slots, or compressed (`segments`, `indices`)."""

    dense_size: int
    segments: Sequence[int] | None = None
    indices: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Sparsity:
    """Storage order of a sparse constant (`SparsityParameters` of schema.fbs)."""

    traversal_order: tuple[int, ...]
    block_map: tuple[int, ...]
    dimensions: tuple[SparseDimension, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a subgraph. `data` is a view into the file for a constant, else None."""

    index: int
    name: str
    type: TensorType
    shape: tuple[int, ...]
    shape_signature: tuple[int, ...] | None = None
    # Buffer 0 is the sentinel that every file has for tensors without values.
    buffer: int = 0
    data: memoryview | None = None
    quantization: Quantization | None = None
    is_variable: bool = False
    sparsity: Sparsity | None = None
    # Tells a scalar from a tensor of unknown rank: neither has a dimension in `shape`.
    has_rank: bool = False
    external_buffer: int = 0

    @property
    def is_constant(self) -> bool:
        """Whether the file holds the values."""
        return self.data is not None


@dataclass(frozen=True, slots=True)
class Operator:
    """One node. `inputs` holds -1 for an absent optional input. `options` uses the schema's field names.

    `intermediates` are tensors that only lend their quantisation to values inside the operator.
    """

    index: int
    opcode: BuiltinOperator
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    custom_code: str | None = None
    custom_options: bytes = b""
    intermediates: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The operator's name as users see it: `CONV_2D`, or the custom code."""
        return self.custom_code if self.custom_code is not None else self.opcode.name


@dataclass(frozen=True, slots=True)
class Subgraph:
    """Tensors and operators in execution order."""

    index: int
    name: str
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """A named entry point: (name, tensor index) pairs in the file's order."""

    key: str
    subgraph_index: int
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Model:
    """A whole `.tflite` file. `source` is what it was read from; a model that was made has none."""

    version: int
    description: str
    subgraphs: tuple[Subgraph, ...]
    signatures: tuple[Signature, ...] = ()
    metadata: Mapping[str, bytes] = field(default_factory=dict)
    external: tuple[ExternalBuffer, ...] = ()
    source: ModelBytes | None = field(default=None, compare=False, repr=False)
