"""The advice of `farm model plan`: each rule where it applies, with its document; none where none does."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.arithmetic import operator_macs
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator as Op
from runtime.tools.model_plan import advice, model_plan, planner_of, suitability
from tests.runtime.demo_models import demo_model
from tests.runtime.models import Builder, per_tensor
from tests.runtime.tools.plan_models import convolution, two_partitions

OPTIONS = {"cost_aware_partitioning": False, "max_delegated_partitions": 9}
RULES = {
    "channels in multiples of 4",
    "reshape operations are expensive",
    "float inputs and outputs",
    "inputs of four channels",
    "a split model waits for two processors",
    "static shapes",
    "a fixed batch",
}


def advised(data: bytes, **options):
    plan = model_plan(read_model(data), planner_of("gpu", {**OPTIONS, **options}, "cpu"))
    return plan, {piece.rule: piece for piece in advice(plan)}


def network(channels: int, *, inputs: int = 16) -> bytes:
    b = Builder()
    x = b.input(np.float32, (1, 8, 8, inputs))
    return b.write([convolution(b, convolution(b, x, inputs, channels, 1), channels, 16, 1)])


def integers() -> bytes:
    """RELU6 of int8 levels."""
    b = Builder()
    grid = per_tensor(0.05)
    x, y = b.input(np.int8, (1, 4, 4, 16), grid), b.tensor(np.int8, (1, 4, 4, 16), grid)
    b.operator(Op.RELU6, [x], [y])
    return b.write([y])


def image(spare: int = 0) -> bytes:
    """Build an average pool, which reads padded rows, of an image of three channels, and unused tensors."""
    b = Builder()
    x, y = b.input(np.float32, (1, 8, 8, 3), name="image"), b.tensor(np.float32, (1, 4, 4, 3))
    for _ in range(spare):
        b.tensor(np.float32, (1,), name="spare")
    window = {"padding": 1, "stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2}
    b.operator(Op.AVERAGE_POOL_2D, [x], [y], window)
    return b.write([y])


def open_batch() -> bytes:
    b = Builder()
    x = b.input(np.float32, (1, 8, 8, 16), shape_signature=(-1, 8, 8, 16))
    return b.write([convolution(b, x, 16, 16, 1)])


def late() -> bytes:
    """Build a convolution beside a WHERE, whose result is shaped at run time, and a CAST of that."""
    b = Builder()
    x, mask = b.input(np.float32, (1, 8, 8, 16)), b.input(np.bool_, (4,))
    places, wide = b.tensor(np.int64), b.tensor(np.float32)
    b.operator(Op.WHERE, [mask], [places])
    b.operator(Op.CAST, [places], [wide])
    return b.write([convolution(b, x, 16, 16, 1), wide])


def test_what_needs_no_advice_gets_none():
    _, found = advised(network(16))
    assert found == {}


def judged(data: bytes, **options):
    return suitability(model_plan(read_model(data), planner_of("gpu", {**OPTIONS, **options}, "cpu")))


def test_a_model_suits_a_delegate_where_nothing_is_to_be_changed():
    found = judged(network(16))
    assert (found.verdict, found.text, found.cpu_share) == ("suits", "suits the GPU", 0.0)


def test_operators_to_change_are_those_of_the_advice_and_those_on_the_cpu():
    found = judged(two_partitions())
    assert found.verdict == "change"
    (split,) = [piece for piece in found.pieces if piece.rule.startswith("a split model")]
    assert set(split.operators) <= set(found.operators)
    assert found.text == f"{len(found.operators)} operators to change"
    assert split.bytes == 2 * 4 * 8 * 8 * 6, "a tensor there and one back"
    assert found.cpu_share == 0.0, "REVERSE_SEQUENCE multiplies nothing"
    assert judged(network(5)).text == "1 operator to change"


def test_a_model_whose_products_mostly_stay_on_the_cpu_does_not_suit():
    data = two_partitions()
    found = judged(data, first_delegate_node_index=3, max_delegated_partitions=1)
    macs = [
        operator_macs(one, read_model(data).subgraphs[0]) for one in read_model(data).subgraphs[0].operators
    ]
    left = sum(macs[:3]) / sum(macs)
    assert found.cpu_share == pytest.approx(left)
    assert found.verdict == ("not" if left > 0.5 else "change")
    nothing = judged(data, first_delegate_node_index=2, last_delegate_node_index=2)
    assert (nothing.verdict, nothing.text) == ("not", "does not suit the GPU")
    assert nothing.cpu_share == 1.0


def test_a_real_network_that_suits_the_delegate_gets_none():
    _, found = advised(demo_model("torchvision_mobilenet_v2"))
    assert found == {}


@pytest.mark.parametrize(("channels", "applies"), [(5, True), (6, True), (8, False), (12, False)])
def test_channels_that_are_no_multiple_of_4_are_named_with_their_padding(channels, applies):
    plan, found = advised(network(channels))
    assert ("channels in multiples of 4" in found) == applies
    if applies:
        piece = found["channels in multiples of 4"]
        assert [plan.operators[o].name for o in piece.operators] == ["CONV_2D"]
        (tensor,) = piece.tensors
        assert plan.graph.tensors[tensor].shape[-1] == channels
        padding = 4 * 64 * (16 - channels) / 1024
        assert piece.gain.startswith(f"{padding:.1f} KiB of their 4.0 KiB")


@pytest.mark.parametrize(
    ("data", "rule", "named"),
    [
        (two_partitions, "reshape operations are expensive", "SPACE_TO_DEPTH"),
        (integers, "float inputs and outputs", "RELU6"),
        (image, "inputs of four channels", "AVERAGE_POOL_2D"),
        (two_partitions, "a split model waits for two processors", "REVERSE_SEQUENCE"),
        (late, "static shapes", "CAST"),
    ],
)
def test_a_rule_that_applies_names_operators_a_gain_and_its_document(data, rule, named):
    plan, found = advised(data())
    piece = found[rule]
    assert named in {plan.operators[index].name for index in piece.operators}
    assert all(0 <= tensor < len(plan.graph.tensors) for tensor in piece.tensors)
    assert piece.finding
    assert piece.gain
    assert "LiteRT" in piece.source or "TFLite" in piece.source
    assert set(found) <= RULES


def test_a_value_that_the_delegate_adds_is_no_tensor_of_the_model():
    plan, found = advised(image(spare=3))
    (partition,) = plan.partitions
    assert {value.tensor for value in partition.values} == {0, 1, None}
    assert found == advised(image())[1]


def test_an_open_batch_is_named_with_the_one_that_is_planned():
    plan, found = advised(open_batch())
    piece = found["a fixed batch"]
    assert piece.tensors == plan.graph.inputs
    assert piece.finding == "1 input(s) have an open batch, 1 in this plan"


def test_integers_that_stay_integers_are_not_converted():
    _, found = advised(integers(), precision="int8")
    assert "float inputs and outputs" not in found


def test_an_image_that_a_kernel_reads_as_it_is_needs_no_fourth_channel():
    _, found = advised(network(16, inputs=3))
    assert "inputs of four channels" not in found


def test_a_reshape_that_is_a_view_costs_nothing():
    b = Builder()
    x, y = b.input(np.float32, (1, 8, 8, 16)), b.tensor(np.float32, (1, 64, 16))
    b.operator(Op.RESHAPE, [convolution(b, x, 16, 16, 1), b.constant(np.array([1, 64, 16], np.int32))], [y])
    z = b.tensor(np.float32, (1, 64, 16))
    b.operator(Op.RELU, [y], [z])
    _, found = advised(b.write([z]))
    assert "reshape operations are expensive" not in found
