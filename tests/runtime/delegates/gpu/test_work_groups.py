"""The kernels of work-groups that a GPU gets, on whatever device there is.

`pytest -m exhaustive tests/runtime/ops -k groups` runs every operator case with them.
"""

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.delegates.gpu.alternatives import candidates_of, layout_rules
from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.capabilities import DeviceClass
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.graph.graph import Node, Step
from runtime.delegates.gpu.lowering.matmul.conv.groups import choose_tile, tiles_for
from runtime.delegates.gpu.lowering.spec import Context
from runtime.delegates.gpu.passes import optimise
from runtime.delegates.gpu.planning.assumed import ASSUMED
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding
from runtime.tools.model_plan import model_plan, planner_of
from tests.models.collection import zoo, zoo_model
from tests.oracle import run_litert
from tests.runtime.delegates.gpu.models import ModelBuilder, whole
from tests.runtime.models import const
from tests.runtime.ops.cases import Backend, case, compare, constant, inside, random
from tests.runtime.ops.families import Family, asked
from tests.runtime.ops.image.test_pool import pool
from tests.runtime.ops.matmul.test_conv import RELU, conv
from tests.runtime.ops.matmul.test_conv_3d import conv as conv_3d
from tests.runtime.ops.matmul.test_depthwise_conv import depthwise
from tests.runtime.ops.matmul.test_transpose_conv import transpose_conv
from tests.runtime.ops.movement.test_pad import padded
from tests.runtime.ops.movement.test_sequence import top
from tests.runtime.ops.movement.test_transpose import moved
from tests.runtime.ops.reduction.test_arg_extreme import extreme
from tests.runtime.ops.test_special_values import CASES as SPECIAL_VALUES
from tests.sweeps import rarely, sweep

OPTIONS = {"device_class": "gpu", "tuning": "none", "cache_dir": "", "cost_aware_partitioning": False}

DROPPED = {"keep_dims": False}
TURNED = {"adj_x": False, "adj_y": True}

CASES = (
    case("add_broadcast", Op.ADD, [random(2, 3, 5, 7), constant(random(7, seed=1))]),
    conv("rows_in_parts", (1, 7, 7, 200), (24, 1, 1, 200), activation=RELU),
    conv("windows", (2, 9, 11, 5), (70, 3, 3, 5), activation=RELU),
    conv("windows_of_an_image", (1, 16, 15, 3), (8, 3, 3, 3), activation=RELU),
    case("one_row", Op.FULLY_CONNECTED, [random(1, 300), constant(random(50, 300, seed=1)), None]),
    # A tile of seven rows by eight columns leaves work-items without a pixel.
    depthwise("tiles_with_idle_items", (1, 112, 112, 96), (3, 3), stride=(2, 2), activation=RELU),
    conv("groups", (2, 9, 11, 6), (9, 3, 3, 2), activation=RELU),
    conv("groups_of_many", (1, 5, 6, 96), (108, 3, 3, 32), activation=RELU),
    conv_3d("volume", (1, 5, 6, 7, 3), (3, 2, 3, 3, 20), stride=(2, 1, 2), activation=RELU),
    transpose_conv("transposed", (1, 4, 5, 7), (6, 3, 4, 7), (1, 8, 9, 6), 2, Padding.SAME, bias=True),
    case("computed_rows", Op.BATCH_MATMUL, [random(2, 3, 5), random(2, 5, 7, seed=1)]),
    case("computed_columns", Op.BATCH_MATMUL, [random(2, 30, 50), random(2, 17, 50, seed=1)], options=TURNED),
    case("mean", Op.MEAN, [random(2, 5, 6, 70), const([1, 2], np.int32)], options={"keep_dims": True}),
    case("maximum", Op.REDUCE_MAX, [random(2, 5, 6, 70), const([3], np.int32)], options={"keep_dims": False}),
    case("mean_in_ranges", Op.MEAN, [random(1, 40, 30, 7), const([1, 2], np.int32)], options=DROPPED),
    padded(0, (2, 3, 5), (1, 0), (2, 1), (0, 3)),
    pool("pool", "MAX", (1, 7, 9, 5)),
    case("norm", Op.L2_NORMALIZATION, [random(2, 5, 6, 7)]),
    inside(moved((20, 3, 40), [2, 1, 0])),
    *(one for one in SPECIAL_VALUES if one.name == "padded_columns"),
    case("softmax_of_few", Op.SOFTMAX, [random(9, 5, low=-20, high=20)], options={"beta": 2.0}),
    case("softmax_of_many", Op.SOFTMAX, [random(2, 1001, low=-20, high=20)], options={"beta": 1.0}),
)


FEW = ("add_broadcast", "one_row", "windows", "norm", "softmax_of_few")
"""Cases that have a chain, products, windows and reductions by the items of a group."""


@pytest.fixture(scope="module")
def family(request):
    """Return the delegate with the cases that are run, whose kernels are compiled at once."""
    return Backend.of("gpu", GpuDelegate(OPTIONS), asked(request, "one"))


@pytest.mark.parametrize("one", sweep(CASES, *FEW))
def test_each_family_matches_litert(family, one):
    found = family.outputs(one)
    assert found is not None
    for ours, theirs in zip(found, run_litert(one.model, one.inputs, one.resolver), strict=True):
        compare(ours, theirs)


LANES = tuple(
    one for one in CASES if one.name in ("windows", "windows_of_an_image", "tiles_with_idle_items", "norm")
)


@pytest.mark.parametrize("cases", [LANES[:1], rarely(LANES)], ids=["few", "all"])
def test_work_items_that_share_nothing_match_litert(cases):
    family = Family(
        GpuDelegate({**OPTIONS, "device_class": "lanes"}), [(one.model, one.inputs) for one in cases]
    )
    for member, one in enumerate(cases):
        for ours, theirs in zip(
            family.outputs(member), run_litert(one.model, one.inputs, one.resolver), strict=True
        ):
            compare(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"memory": "least", "device_class": "cpu"}, {}], ids=["least", "gpu"])
def test_what_is_not_finite_reaches_the_outputs_of_its_windows_alone(options):
    """By the kernels of work-groups, and where the least memory leaves no method of Winograd."""
    one = conv("window", (1, 28, 29, 16), (16, 3, 3, 16))
    image = one.inputs[0].copy()
    image[0, 5, 7, 3], image[0, 20, 20, 0], image[0, 27, 28, 15] = np.nan, np.inf, -np.inf
    (found,) = Family(GpuDelegate({**OPTIONS, **options}), [(one.model, (image,))]).outputs(0)
    (expected,) = run_litert(one.model, (image,), one.resolver)
    assert not np.isfinite(expected).all()
    compare(found, expected)


def one_of_each():
    """Build a branch for each family of kernels."""
    build = ModelBuilder()
    x, row = build.input(1, 7, 7, 200), build.input(1, 300)
    weights = build.constant(np.ones((24, 1, 1, 200), np.float32))
    options = {"stride_h": 1, "stride_w": 1, "padding": Padding.VALID}
    pixels = build.op(Op.CONV_2D, [x, weights], (1, 7, 7, 24), **options)
    product = build.op(Op.FULLY_CONNECTED, [row, build.constant(np.ones((50, 300), np.float32))], (1, 50))
    chain = build.op(Op.TANH, [x], (1, 7, 7, 200))
    return build.build(pixels, chain, build.op(Op.SOFTMAX, [product], (1, 50), beta=1.0))


def launches_of(model, device):
    """Return the launches by which the delegate would run a model on this device."""
    graph = optimise(build_graph(whole(model)), layout_rules())
    context = Context(graph, device)
    return [launch for node in graph.nodes for launch in candidates_of(node, context)[0].launches]


def test_a_gpu_gets_kernels_of_work_groups(backend):
    device = replace(backend.capabilities, device_class=DeviceClass.GPU, shares_one_kernel=False)
    grouped = [one for one in launches_of(one_of_each(), device) if one.instance.work_group is not None]
    assert {launch.instance.source for launch in grouped} == {
        "elementwise/elementwise_groups.cl",
        "matmul/conv/gemm_groups.cl",
        "matmul/conv/gemm_join_groups.cl",
        "matmul/conv/gemm_row_groups.cl",
        "movement/reshape_groups.cl",
        "reduction/softmax_groups.cl",
    }
    for launch in grouped:
        assert launch.work_items == prod(launch.groups) * prod(launch.instance.work_group.size)
        assert launch.local_bytes <= 16 << 10


def test_the_class_decides_which_kernels_there_are():
    assert GpuDelegate({"cache_dir": ""}).describe()["device_class"] == "cpu"
    described = GpuDelegate(OPTIONS).describe()
    assert (described["device_class"], described["functions"]) == ("gpu", "kernels of their own")


@pytest.mark.parametrize(
    ("rows", "columns", "parts", "expected"),
    [
        (12544, 512, 1, "m128n128"),
        (3136, 256, 1, "m32n64"),
        (49, 512, 8, "m64n64"),
        (49, 512, 1, "m16n64"),
        (5, 1000, 1, "m16n64"),
    ],
)
def test_tiles_are_as_large_as_the_work_items_allow(rows, columns, parts, expected):
    assert choose_tile(rows, columns, parts=parts).name == expected


@pytest.mark.parametrize(
    ("vendor", "step", "expected"),
    [
        ("NVIDIA Corporation", "GELU", "m128n128"),
        ("Intel(R) Corporation", "SATURATE", "m128n64"),
        ("Intel(R) Corporation", "GELU", "m64n64"),
    ],
)
def test_tiles_leave_registers_for_their_sums_and_the_epilogue(vendor, step, expected):
    node = Node(0, Op.FULLY_CONNECTED, (0,), (1,), epilogue=(Step(step),))
    tiles = tiles_for(node, replace(ASSUMED["gpu"], vendor=vendor))
    assert choose_tile(12544, 512, tiles=tiles).name == expected


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["torchvision_mobilenet_v2", "torchvision_resnet18"])
def test_a_network_agrees_with_the_cpu_path(name):
    model = zoo_model(name)
    found = []
    for delegates in ([], [GpuDelegate({**OPTIONS, "require_full_delegation": True})]):
        interpreter = Interpreter(model_content=model, experimental_delegates=delegates)
        interpreter.allocate_tensors()
        (details,) = interpreter.get_input_details()
        values = np.random.default_rng(0).standard_normal(details["shape"]).astype(np.float32)
        interpreter.set_tensor(details["index"], values)
        interpreter.invoke()
        found.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
    expected, ours = found
    assert np.linalg.norm(ours - expected) <= 1e-4 * np.linalg.norm(expected)


FEW_ITEMS = 10_000
"""Work-items with which a launch leaves nearly all of a large GPU idle."""

DIVIDED = (
    conv("parts_of_few_columns", (1, 27, 27, 64), (48, 3, 3, 64)),
    conv("groups_of_channels", (1, 1, 50, 192), (192, 1, 128, 48)),
    conv_3d("every_other_cell", (1, 4, 56, 56, 16), (1, 1, 1, 16, 128), stride=(2, 2, 2)),
    transpose_conv("transposed", (1, 16, 16, 64), (32, 4, 4, 64), (1, 32, 32, 32), 2, Padding.SAME),
    case("mean_of_an_image", Op.MEAN, [random(1, 112, 112, 32), const([1, 2], np.int32)], options=DROPPED),
    case("sum_of_everything", Op.SUM, [random(1, 112, 112, 32), const([0, 1, 2, 3], np.int32)]),
    padded(0, (1, 56, 56, 32), (0, 0), (1, 1), (1, 1), (0, 0)),
    extreme("classes_of_pixels", Op.ARG_MAX, random(1, 112, 112, 21), 3),
    top("few_of_many_rows", random(112, 300), 5),
)


def planned(model):
    """Return the launches of a model on a large GPU."""
    plan = model_plan(read_model(model), planner_of("gpu", {"cost_aware_partitioning": False}, "gpu"))
    return [launch for partition in plan.partitions for launch in partition.launches]


def small_ones(launches):
    """Return the small launches, by work-items, among those with a percent or more of the arithmetic or
    traffic.
    """
    flops, traffic = (sum(getattr(one, what) for one in launches) for what in ("flops", "bytes"))
    large = [one for one in launches if one.flops >= 0.01 * flops or one.bytes >= 0.01 * traffic]
    assert large
    return {one.function: one.work_items for one in large if one.work_items < FEW_ITEMS}


@pytest.mark.parametrize("one", DIVIDED, ids=str)
def test_one_operator_fills_a_large_gpu(one):
    assert small_ones(planned(one.model)) == {}


def test_no_launch_that_matters_has_few_work_items():
    assert small_ones(planned(zoo_model("torchvision_resnet18"))) == {}


@pytest.mark.exhaustive
def test_no_launch_of_a_network_of_a_gigaflop_that_matters_has_few_work_items():
    names = [name for name, entry in zoo().items() if 2 * entry["macs"] > 1e9]
    assert len(names) > 50
    assert {name: small for name in names if (small := small_ones(planned(zoo_model(name))))} == {}
