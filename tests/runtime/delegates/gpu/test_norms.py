"""The norm of a layer, written as converters do, becomes one kernel with the numbers of its formula."""

import numpy as np
import pytest

from delegate_farm import Interpreter
from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.passes.fuse_norms import fuse_norms
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.writer import write_model
from tests.runtime.delegates.gpu.models import ModelBuilder, whole
from tests.runtime.delegates.gpu.norms import EPSILON, Norm
from tests.sweeps import rarely

SHAPES = ((1, 3, 2), (1, 5, 15), (2, 7, 16), (1, 3, 17), (1, 1, 33), (3, 2, 96), (1, 2, 1030))
"""Channels around a vector's sixteen, and more than a work-group's items."""


def norms_of(graph):
    return [node for node in fuse_norms(graph).nodes if node.op == Op.L2_NORMALIZATION]


@pytest.mark.parametrize("keep_dims", [False, True])
def test_a_norm_is_one_node_of_all_its_operators(keep_dims):
    build = ModelBuilder()
    norm = Norm(build, (1, 4, 40), keep_dims=keep_dims)
    graph = build_graph(whole(build.build(norm.y)))
    (node,) = norms_of(graph)
    assert (node.inputs, node.outputs) == ((norm.x,), (norm.y,))
    assert node.attributes["epsilon"] == pytest.approx(EPSILON)
    assert node.sources == tuple(range(len(build.operators)))
    assert len(fuse_norms(graph).nodes) < len(graph.nodes)


@pytest.mark.parametrize(
    "other",
    [{"zero": 1.0}, {"axis": 1}, {"root": "itself"}],
    ids=["another offset", "over the pixels", "another product"],
)
def test_another_formula_stays_as_it_is(other):
    build = ModelBuilder()
    shape = (1, 40, 40)
    assert not norms_of(build_graph(whole(build.build(Norm(build, shape, **other).y))))


def test_a_norm_of_which_a_part_is_read_elsewhere_stays():
    build = ModelBuilder()
    norm = Norm(build, (1, 4, 40))
    assert not norms_of(build_graph(whole(build.build(norm.y, norm.factor))))


@pytest.mark.parametrize("device_class", ["cpu", rarely("gpu"), rarely("lanes")])
def test_it_gives_the_numbers_of_the_formula(device_class, tmp_path_factory):
    """Scale and offset of the channels behind it are steps of the same kernel; the mean is far from zero."""
    random, build, expected = np.random.default_rng(3), ModelBuilder(), {}
    outputs, given = [], {}
    for shape in SHAPES:
        norm = Norm(build, shape)
        scale, offset = (random.standard_normal(shape[-1]).astype(np.float32) for _ in range(2))
        scaled = build.op(Op.MUL, [norm.y, build.constant(scale)], shape)
        outputs.append(build.op(Op.ADD, [scaled, build.constant(offset)], shape))
        given[norm.x] = x = (9 + random.standard_normal(shape)).astype(np.float32)
        wide = x.astype(np.float64)
        centred = wide - wide.mean(axis=-1, keepdims=True)
        root = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPSILON)
        expected[outputs[-1]] = centred / root * scale + offset
    options = {"device_class": device_class, "tuning": "none", "cost_aware_partitioning": False}
    delegate = GpuDelegate({**options, "cache_dir": str(tmp_path_factory.mktemp("cache"))})
    model = build.build(*outputs)
    assert len(norms_of(build_graph(whole(model)))) == len(SHAPES)
    interpreter = Interpreter(model_content=write_model(model), experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    assert interpreter.delegation.status == "full", str(interpreter.delegation)
    for detail, x in zip(interpreter.get_input_details(), given.values(), strict=True):
        interpreter.set_tensor(detail["index"], x)
    interpreter.invoke()
    for detail, wanted in zip(interpreter.get_output_details(), expected.values(), strict=True):
        found = interpreter.get_tensor(detail["index"])
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5)
