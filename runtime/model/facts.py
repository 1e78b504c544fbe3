"""Facts about a `.tflite` file, from its tables alone; nothing is executed and no weight is read."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from runtime.errors import ModelFormatError
from runtime.model.arithmetic import macs_of
from runtime.model.flatbuffer import FlatBuffer
from runtime.model.graph import Model, Operator, Quantization, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType

Kind = Literal["float32", "fp16 weights", "dynamic-range", "integer", "quantisation-aware", "mixed"]

_FLOATS: Final = frozenset({TensorType.FLOAT32, TensorType.FLOAT16, TensorType.FLOAT64})
_QUANTISED: Final = frozenset(
    {TensorType.INT8, TensorType.UINT8, TensorType.INT16, TensorType.INT4, TensorType.UINT4}
)


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output. `signature`: the shape with -1 where it may change."""

    name: str
    type: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    quantization: str


@dataclass(frozen=True, slots=True)
class SignatureFacts:
    """A named entry point with its arguments' names."""

    key: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OperatorCount:
    """The number of occurrences of an operator in one version."""

    name: str
    version: int
    count: int


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One file. `parameters`: elements of floating-point and quantised constants; `macs`: of one invocation.

    `quantization` counts constants and activations by type, `weights`/`activations` in its keys.
    """

    size_bytes: int
    description: str
    kind: Kind
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    signatures: tuple[SignatureFacts, ...]
    metadata: tuple[str, ...]
    subgraphs: int
    operators: tuple[OperatorCount, ...]
    tensors: int
    parameters: int
    weight_bytes: int
    macs: int
    quantization: dict[str, int]


def model_facts(model: Model, size_bytes: int) -> ModelFacts:
    """Return the facts of a model, which follow from its graph."""
    first = model.subgraphs[0]
    constants = [t for s in model.subgraphs for t in s.tensors if t.is_constant]
    # Integers without a scale stand for themselves, as shapes and axes do, and are no weights.
    weights = [t for t in constants if t.type in _FLOATS or (t.type in _QUANTISED and t.quantization)]
    return ModelFacts(
        size_bytes=size_bytes,
        description=model.description,
        kind=kind_of(model),
        inputs=_ports(first, first.inputs),
        outputs=_ports(first, first.outputs),
        signatures=tuple(
            SignatureFacts(s.key, tuple(n for n, _ in s.inputs), tuple(n for n, _ in s.outputs))
            for s in model.signatures
        ),
        metadata=tuple(model.metadata),
        subgraphs=len(model.subgraphs),
        operators=_histogram(model),
        tensors=sum(len(s.tensors) for s in model.subgraphs),
        parameters=sum(math.prod(t.shape) for t in weights),
        weight_bytes=sum(len(t.data) for t in _distinct(constants) if t.data is not None),
        macs=sum(macs_of(s) for s in model.subgraphs),
        quantization=_quantization(model),
    )


def kind_of(model: Model) -> Kind:
    """Return the kind of the file's quantisation, judged by the inputs of its matrix operators.

    FAKE_QUANT marks a quantisation-aware graph before conversion; afterwards such a file is `integer`.
    """
    operators = [o for s in model.subgraphs for o in s.operators]
    if any(o.opcode is BuiltinOperator.FAKE_QUANT for o in operators):
        return "quantisation-aware"
    found = {_pairing(o, s) for s in model.subgraphs for o in s.operators} - {None}
    activations = {
        t.type
        for s in model.subgraphs
        for t in s.tensors
        if not t.is_constant and t.type in _QUANTISED and t.quantization
    }
    if not found:
        return "integer" if activations else "float32"
    if len(found) == 1:
        kind = found.pop()
        assert kind is not None
        return kind
    return "fp16 weights" if found == {"float32", "fp16 weights"} else "mixed"


def _pairing(operator: Operator, subgraph: Subgraph) -> Kind | None:
    """Return the kind that a matrix operator's activations and weights ask for; None for other operators."""
    place = _WEIGHTS.get(operator.opcode)
    if place is None or len(operator.inputs) <= max(place) or min(operator.inputs[i] for i in place) < 0:
        return None
    data, weights = (subgraph.tensors[operator.inputs[i]] for i in place)
    if data.type in _QUANTISED:
        return "integer"
    if weights.type in _QUANTISED:
        return "dynamic-range"
    return _stored(weights, subgraph)


def _stored(weights: Tensor, subgraph: Subgraph) -> Kind:
    """Return the kind of float weights, which are stored smaller where a DEQUANTIZE computes them."""
    for operator in subgraph.operators:
        if weights.index in operator.outputs and operator.opcode is BuiltinOperator.DEQUANTIZE:
            source = subgraph.tensors[operator.inputs[0]]
            return "fp16 weights" if source.type is TensorType.FLOAT16 else "dynamic-range"
    return "fp16 weights" if weights.type is TensorType.FLOAT16 else "float32"


_WEIGHTS: Final = {
    **dict.fromkeys(
        (
            BuiltinOperator.CONV_2D, BuiltinOperator.DEPTHWISE_CONV_2D, BuiltinOperator.FULLY_CONNECTED,
            BuiltinOperator.CONV_3D, BuiltinOperator.BATCH_MATMUL, BuiltinOperator.RNN, BuiltinOperator.SVDF,
            BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_RNN, BuiltinOperator.BIDIRECTIONAL_SEQUENCE_RNN,
        ),
        (0, 1),
    ),
    **dict.fromkeys((BuiltinOperator.TRANSPOSE_CONV, BuiltinOperator.CONV_3D_TRANSPOSE), (2, 1)),
    BuiltinOperator.LSTM: (0, 2),
    BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM: (0, 2),
    BuiltinOperator.BIDIRECTIONAL_SEQUENCE_LSTM: (0, 2),
}  # fmt: skip
"""The inputs of matrix operators that hold the activations and the weights."""


def _ports(subgraph: Subgraph, indices: Sequence[int]) -> tuple[Port, ...]:
    tensors = [subgraph.tensors[i] for i in indices]
    return tuple(
        Port(t.name, t.type.name.lower(), t.shape, t.shape_signature or t.shape, _grid(t.quantization))
        for t in tensors
    )


def _grid(quantization: Quantization | None) -> str:
    if quantization is None:
        return ""
    if quantization.blocks is not None:
        return f"blocks of {quantization.blocks.block_size}"
    if len(quantization.scales) > 1:
        return f"{len(quantization.scales)} scales along dimension {quantization.quantized_dimension}"
    if not quantization.scales:
        return "custom" if quantization.is_custom else ""
    return f"{quantization.scales[0]:.6g} * (q - {quantization.zero_points[0]})"


def _histogram(model: Model) -> tuple[OperatorCount, ...]:
    counts = Counter((o.name, o.version) for s in model.subgraphs for o in s.operators)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(OperatorCount(name, version, count) for (name, version), count in ordered)


def _quantization(model: Model) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for subgraph in model.subgraphs:
        for tensor in subgraph.tensors:
            role = "weights" if tensor.is_constant else "activations"
            counts[f"{tensor.type.name.lower()} {role}{_grain(tensor)}"] += 1
    return dict(sorted(counts.items()))


def _grain(tensor: Tensor) -> str:
    found = tensor.quantization
    if found is None or tensor.type not in _QUANTISED:
        return ""
    if found.blocks is not None:
        return ", blockwise"
    return ", per channel" if len(found.scales) > 1 else ", per tensor"


def _distinct(tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield one tensor for each buffer, as tensors may share them."""
    seen: set[int] = set()
    for tensor in tensors:
        if tensor.buffer not in seen:
            seen.add(tensor.buffer)
            yield tensor


_METADATA: Final = "TFLITE_METADATA"
_NORMALISATION: Final = 1
"""`NormalizationOptions` in the union of a process unit's options."""


def picture_normalisation(model: Model) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return mean and deviation of the first input's pixels, None where the metadata has none.

    Raises `ModelFormatError` for metadata that cannot be read.
    """
    content = model.metadata.get(_METADATA)
    if content is None:
        return None
    for graph in FlatBuffer(content).root().tables(3, "subgraph_metadata"):
        for tensor in graph.tables(2, "input_tensor_metadata"):
            for unit in tensor.tables(4, "process_units"):
                if unit.scalar(0, "options_type", "B") != _NORMALISATION:
                    continue
                options = unit.table(1, "options")
                mean = None if options is None else options.numbers(0, "mean", "f")
                std = None if options is None else options.numbers(1, "std", "f")
                if not mean or not std or any(value <= 0 for value in std):
                    raise ModelFormatError(f"{_METADATA}: a normalisation without mean or std")
                return mean, std
            # Pictures are fed to the first input: the metadata of further ones is not theirs.
            break
    return None
