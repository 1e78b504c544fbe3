"""Applies the advice of LiteRT's documents about models for GPUs to a plan; says how well a model suits.

Each piece names what it is about, and says what the plan shows it to cost. Where nothing applies there is
none: the delegate may have what a rule warns of for free, as a reshape that is a view.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from runtime.delegates.plan import PartitionPlan, PlannedKernel, PlannedNode
from runtime.model.arithmetic import operator_macs
from runtime.model.checks import tensor_bytes
from runtime.model.schema import TensorType
from runtime.tools.model_plan.model import ModelPlan

GPU_DOCUMENT: Final = "GPU delegates for LiteRT, https://ai.google.dev/edge/litert/performance/gpu"
README: Final = "TFLite on GPU, tensorflow/lite/delegates/gpu/README.md"
STATIC_ONLY: Final = (
    "LiteRT's message: Attempting to use a delegate that only supports static-sized tensors with a graph "
    "that has dynamic-sized tensors"
)

_RESHAPES: Final = frozenset(
    {
        "RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "SPACE_TO_DEPTH", "DEPTH_TO_SPACE",
        "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND",
    }
)  # fmt: skip
"""Operators that only change the shape or the order of a tensor."""

_SLICE: Final = 4
"""Channels of a slice of LiteRT's GPU tensors: its documents advise multiples of it."""

_RGB: Final = 3
"""Channels of an image without transparency. Frames of four need no padding (GPU delegates for LiteRT)."""

_IMAGE_RANK: Final = 4
"""Dimensions of a batch of images: [batch, height, width, channels], as LiteRT's vision models have them."""

_LATE: Final = "its shapes are known at run time only"
_INTEGERS: Final = frozenset({TensorType.INT8, TensorType.UINT8, TensorType.INT16})


@dataclass(frozen=True, slots=True)
class Advice:
    """A piece of advice: the rule, what of the model it is about, what that costs here, and who says so.

    `operators` and `tensors` are indices; `bytes` are what it would save of one run, 0 where unknown.
    """

    rule: str
    operators: tuple[int, ...]
    tensors: tuple[int, ...]
    finding: str
    gain: str
    source: str = GPU_DOCUMENT
    bytes: int = 0


def advice(plan: ModelPlan) -> tuple[Advice, ...]:
    """All that applies, the rules in a fixed order."""
    return tuple(
        piece
        for rule in (_channels, _reshapes, _integer_borders, _rgb_inputs, _splits, _late_shapes, _open_batch)
        for piece in rule(plan)
    )


def _channels(plan: ModelPlan) -> Iterator[Advice]:
    """One piece for each channel count: the tensors that the delegate pads."""
    found: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    for partition in plan.partitions:
        makers = {value: node for node in partition.nodes for value in node.writes}
        for value in partition.values:
            padding = value.bytes - value.dense_bytes
            channels = value.shape[-1] if value.shape else _SLICE
            if channels % _SLICE and padding > 0 and value.id in makers and value.tensor is not None:
                found[channels].append((makers[value.id].main, value.tensor, value.bytes, padding))
    for channels, cases in sorted(found.items(), key=lambda item: -sum(case[3] for case in item[1])):
        size, padding = sum(case[2] for case in cases), sum(case[3] for case in cases)
        yield Advice(
            rule="channels in multiples of 4",
            operators=tuple(dict.fromkeys(case[0] for case in cases)),
            tensors=tuple(case[1] for case in cases),
            finding=f"{len(cases)} tensor(s) have {channels} channels",
            gain=f"{kibibytes(padding)} of their {kibibytes(size)} are padding, which is computed too",
            bytes=padding,
        )


def _reshapes(plan: ModelPlan) -> Iterator[Advice]:
    """One piece for each kind of operator that costs launches of its own."""
    found: dict[str, list[tuple[int, PlannedKernel]]] = defaultdict(list)
    for partition in plan.partitions:
        for node in partition.nodes:
            name = plan.operators[node.main].name
            if name in _RESHAPES and node.kind not in _CONVERSIONS and not _is_border(node, partition):
                found[name] += [(node.main, launch) for launch in node.launches]
    moved = sum(launch.bytes for partition in plan.partitions for launch in partition.launches)
    for name, cases in sorted(found.items()):
        operators = tuple(dict.fromkeys(operator for operator, _ in cases))
        own = sum(launch.bytes for _, launch in cases)
        yield Advice(
            rule="reshape operations are expensive",
            operators=operators,
            tensors=tuple(tensor for operator in operators for tensor in plan.operators[operator].outputs),
            finding=f"copied by launches of its own: {len(operators)} x {name}",
            gain=f"without them {len(cases)} launch(es) less, and {_share(own, moved)} of the bytes moved",
            bytes=own,
        )


_CONVERSIONS: Final = frozenset({"QUANTIZE", "DEQUANTIZE"})


def _is_border(node: PlannedNode, partition: PartitionPlan) -> bool:
    """Return True for the copy of an input or an output, which another rule is about."""
    return (
        node.kind == "RESHAPE"
        and set(node.reads) <= set(partition.inputs)
        and not node.merged
        # A copy that the delegate adds writes a value that is no tensor of the model.
        and ({value.tensor for value in partition.values if value.id in node.writes} == {None})
    )


def _integer_borders(plan: ModelPlan) -> Iterator[Advice]:
    """Yield the conversions of integer inputs and outputs of the model."""
    tensors = plan.graph.tensors
    border = {t for t in (*plan.graph.inputs, *plan.graph.outputs) if tensors[t].type in _INTEGERS}
    cases = [
        (node, value)
        for partition in plan.partitions
        for node in partition.nodes
        if node.kind in _CONVERSIONS
        for value in (*node.reads, *node.writes)
        if _tensor_of(partition, value, border) in border
    ]
    if cases:
        launches = [launch for node, _ in cases for launch in node.launches]
        yield Advice(
            rule="float inputs and outputs",
            operators=tuple(dict.fromkeys(node.main for node, _ in cases)),
            tensors=tuple(sorted(border)),
            finding=f"{len(border)} input(s) and output(s) are integers, converted in every run",
            gain=f"with floats {len(launches)} launch(es) and {kibibytes(_bytes(launches))} less",
            bytes=_bytes(launches),
        )


def _tensor_of(partition: PartitionPlan, value: int, border: set[int]) -> int | None:
    """Return the model's tensor behind a value; one of another type is known by its name."""
    known = {one.id: one for one in partition.values}.get(value)
    if known is None:
        return None
    if known.tensor is not None or value not in (*partition.inputs, *partition.outputs):
        return known.tensor
    return value if value in border else None


def _rgb_inputs(plan: ModelPlan) -> Iterator[Advice]:
    """Images of three channels that are copied into rows of more."""
    for partition in plan.partitions:
        copies = [node for node in partition.nodes if _is_border(node, partition)]
        for tensor in set(partition.inputs) & set(plan.graph.inputs):
            shape = plan.graph.tensors[tensor].shape
            own = [launch for node in copies if tensor in node.reads for launch in node.launches]
            if len(shape) == _IMAGE_RANK and shape[-1] == _RGB and own:
                yield Advice(
                    rule="inputs of four channels",
                    operators=tuple(dict.fromkeys(o for launch in own for o in launch.operators)),
                    tensors=(tensor,),
                    finding=f"input {plan.graph.tensors[tensor].name!r} has 3 channels and is copied first",
                    gain=f"with RGBA frames {len(own)} launch(es) and {kibibytes(_bytes(own))} less",
                    bytes=_bytes(own),
                )


def _splits(plan: ModelPlan) -> Iterator[Advice]:
    """Operators on the CPU between or beside partitions."""
    left = [operator for operator in plan.operators if operator.place == "cpu"]
    if not left or not plan.partitions:
        return
    tensors = plan.graph.tensors
    outside = {*plan.graph.inputs, *plan.graph.outputs}
    crossing = {t for partition in plan.partitions for t in (*partition.inputs, *partition.outputs)} - outside
    yield Advice(
        rule="a split model waits for two processors",
        operators=tuple(operator.index for operator in left),
        tensors=tuple(sorted(crossing)),
        finding=f"{len(left)} operator(s) stay on the CPU, in {len(plan.steps)} steps",
        gain=f"{len(crossing)} tensor(s) are handed over in every run; the reasons are above",
        bytes=sum(tensor_bytes(tensors[index].type, tensors[index].shape) or 0 for index in crossing),
    )


def _late_shapes(plan: ModelPlan) -> Iterator[Advice]:
    late = [operator for operator in plan.operators if _LATE in operator.reason]
    if late:
        yield Advice(
            rule="static shapes",
            operators=tuple(operator.index for operator in late),
            tensors=tuple(tensor for operator in late for tensor in operator.outputs),
            finding=f"the shapes of {len(late)} operator(s) are known at run time only",
            gain="with shapes that follow from the inputs' they could be delegated",
            source=STATIC_ONLY,
        )


def _open_batch(plan: ModelPlan) -> Iterator[Advice]:
    tensors = [plan.graph.tensors[index] for index in plan.graph.inputs]
    open_ended = [t for t in tensors if t.shape_signature and t.shape_signature[0] < 0]
    if open_ended and plan.partitions:
        yield Advice(
            rule="a fixed batch",
            operators=(),
            tensors=tuple(tensor.index for tensor in open_ended),
            finding=f"{len(open_ended)} input(s) have an open batch, {open_ended[0].shape[0]} in this plan",
            gain="each other batch is planned when it first runs; convert the model with the one in use",
            source=f"{README}, the option dynamic_batch_enabled",
        )


def _bytes(launches: list[PlannedKernel]) -> int:
    return sum(launch.bytes for launch in launches)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"


def kibibytes(count: int) -> str:
    """Format a size for people."""
    return f"{count / 2**20:.2f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"


Verdict = Literal["suits", "change", "not"]

_MOST_ON_CPU: Final = 0.5
"""The share of the arithmetic on the CPU beyond which a model does not suit a delegate: what it takes is then
the smaller part, so that it can make a run at best twice as fast."""


@dataclass(frozen=True, slots=True)
class Suitability:
    """A verdict with what it rests on: `change` where operators, given by index, would have to be changed.

    `cpu_share`: the share of the model's products that stays on the CPU, 0 to 1, or of its operators where it
    multiplies no matrices.
    """

    verdict: Verdict
    cpu_share: float
    operators: tuple[int, ...]
    pieces: tuple[Advice, ...]

    @property
    def text(self) -> str:
        """The verdict in words."""
        count = len(self.operators)
        words = {
            "suits": "suits the GPU",
            "change": f"{count} operator{'' if count == 1 else 's'} to change",
            "not": "does not suit the GPU",
        }
        return words[self.verdict]


def suitability(plan: ModelPlan) -> Suitability:
    """Judge a plan by the advice that applies to it and by what stays on the CPU."""
    pieces = advice(plan)
    left = {one.index for one in plan.operators if one.place == "cpu"}
    advised = {operator for piece in pieces for operator in piece.operators}
    changed = tuple(sorted(left | advised))
    share = _cpu_share(plan, left)
    if not plan.partitions or share > _MOST_ON_CPU:
        return Suitability("not", share, changed, pieces)
    return Suitability("change" if changed else "suits", share, changed, pieces)


def _cpu_share(plan: ModelPlan, left: set[int]) -> float:
    macs = {one.index: operator_macs(one, plan.graph) for one in plan.graph.operators}
    total = sum(macs.values())
    if total:
        return sum(macs[index] for index in left) / total
    ran = [one for one in plan.operators if one.place != "constant"]
    return len(left) / len(ran) if ran else 0.0
