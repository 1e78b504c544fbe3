"""`farm model bisect` names broken kernels and broken fusions, on the CPU and on the GPU delegate."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from runtime.delegates.gpu import passes
from runtime.delegates.gpu.graph.graph import Graph, Step
from runtime.delegates.gpu.layout import source
from runtime.model.graph import Model
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator as Op
from runtime.ops.support import registry
from runtime.tools.model_bisect.oracle import OracleError, litert_runs, read_arrays
from runtime.tools.model_bisect.search import Bisected, bisect, one_operator
from runtime.tools.verbs import model_verbs
from tests.runtime.models import Builder
from tests.sweeps import sweep

GPU = {"tuning": "none", "cache_dir": ""}


class Network:
    """A chain of layers over pictures of 8x8 pixels and 16 channels."""

    def __init__(self) -> None:
        self.builder = Builder()
        self.rng = np.random.default_rng(5)
        self.end = self.builder.input(np.float32, (1, 8, 8, 16))

    def _behind(self, opcode: Op, inputs: list[int], **options: Any) -> Network:
        output = self.builder.tensor(np.float32, (1, 8, 8, 16))
        self.builder.operator(opcode, inputs, [output], options)
        self.end = output
        return self

    def _weights(self, *shape: int) -> int:
        return self.builder.constant(self.rng.normal(0, 0.4, shape).astype(np.float32))

    def conv(self) -> Network:
        inputs = [self.end, self._weights(16, 1, 1, 16), self._weights(16)]
        return self._behind(Op.CONV_2D, inputs, padding=0, stride_w=1, stride_h=1)

    def depthwise(self) -> Network:
        inputs = [self.end, self._weights(1, 3, 3, 16), self._weights(16)]
        options = {"padding": 0, "stride_w": 1, "stride_h": 1, "depth_multiplier": 1}
        return self._behind(Op.DEPTHWISE_CONV_2D, inputs, **options)

    def pool(self) -> Network:
        options = {"padding": 0, "stride_w": 1, "stride_h": 1, "filter_width": 3, "filter_height": 3}
        return self._behind(Op.MAX_POOL_2D, [self.end], **options)

    def softmax(self) -> Network:
        return self._behind(Op.SOFTMAX, [self.end], beta=1.0)

    def swish(self) -> Network:
        x = self.end
        self._behind(Op.LOGISTIC, [x])
        return self._behind(Op.MUL, [x, self.end])

    def add(self) -> Network:
        return self._behind(Op.ADD, [self.end, self._weights(16)])

    def gate(self) -> Network:
        return self._behind(Op.MUL, [self.end, self.builder.input(np.float32, (1, 1, 1, 16))])

    def reverse(self) -> Network:
        lengths = self.builder.constant(np.array([5], np.int32))
        return self._behind(Op.REVERSE_SEQUENCE, [self.end, lengths], seq_dim=1, batch_dim=0)

    def relu(self) -> Network:
        return self._behind(Op.RELU, [self.end])

    def model(self) -> Model:
        return read_model(self.builder.write([self.end]))


MODELS: dict[str, tuple[Callable[[], Model], dict[Op, tuple[int, ...]]]] = {
    "one of each": (
        lambda: Network().depthwise().pool().softmax().model(),
        {Op.DEPTHWISE_CONV_2D: (0,), Op.MAX_POOL_2D: (1,), Op.SOFTMAX: (2,)},
    ),
    "two of each": (
        lambda: Network().pool().softmax().depthwise().relu().pool().depthwise().softmax().model(),
        {Op.MAX_POOL_2D: (0, 4), Op.SOFTMAX: (1, 6), Op.DEPTHWISE_CONV_2D: (2, 5)},
    ),
    "between others": (
        lambda: Network().conv().relu().depthwise().add().softmax().conv().pool().swish().model(),
        {Op.DEPTHWISE_CONV_2D: (2,), Op.SOFTMAX: (4,), Op.MAX_POOL_2D: (6,)},
    ),
}

KERNELS = {
    Op.DEPTHWISE_CONV_2D: (
        "matmul/depthwise_conv.cl",
        "kx * DILATION_W] * tap",
        "kx * DILATION_W] * tap * 0.99f",
    ),
    Op.MAX_POOL_2D: ("image/pool.cl", "y1 = min(y + FILTER_H, IN_H)", "y1 = min(y + FILTER_H - 1, IN_H)"),
    Op.SOFTMAX: ("reduction/softmax.cl", "1.0f / sum_of16(total)", "1.02f / sum_of16(total)"),
}
"""Kernels of the GPU delegate: the file, and a part of it that a wrong one replaces."""


def found_in(model: Model, delegate: str) -> Bisected:
    shapes = [model.subgraphs[0].tensors[i].shape for i in model.subgraphs[0].inputs]
    feeds = [np.random.default_rng(1).normal(size=shape).astype(np.float32) for shape in shapes]
    return bisect(model, feeds, delegate, GPU if delegate == "gpu" else {})


def break_kernel(monkeypatch: pytest.MonkeyPatch, delegate: str, opcode: Op) -> None:
    """Let a delegate compute an operator wrongly, by some per cent or at some places."""
    if delegate == "cpu":
        spec = registry.SPECS[opcode]

        def prepare(op: Any) -> Callable[[], None]:
            run, output = spec.prepare(op), op.write(0)

            def wrong() -> None:
                run()
                output.reshape(-1)[::7] *= np.float32(0.97)

            return wrong

        monkeypatch.setitem(registry._REGISTRY, opcode, replace(spec, prepare=prepare))
        return
    name, right, wrong = KERNELS[opcode]
    read = source.kernel_source

    def patched(file: str) -> str:
        text = read(file)
        assert file != name or right in text
        return text.replace(right, wrong) if file == name else text

    monkeypatch.setattr(source, "kernel_source", patched)


@pytest.mark.parametrize("delegate", ["cpu", "gpu"])
@pytest.mark.parametrize("name", sweep(MODELS, "between others"))
def test_nothing_is_named_where_nothing_is_wrong(name: str, delegate: str) -> None:
    found = found_in(MODELS[name][0](), delegate)
    assert found.suspects == ()
    assert found.in_place is None
    assert found.missing == ()


@pytest.mark.parametrize("delegate", ["cpu", "gpu"])
@pytest.mark.parametrize("opcode", KERNELS)
@pytest.mark.parametrize("name", sweep(MODELS, "two of each"))
def test_broken_kernels_are_named(
    monkeypatch: pytest.MonkeyPatch, name: str, opcode: Op, delegate: str
) -> None:
    break_kernel(monkeypatch, delegate, opcode)
    make, places = MODELS[name]
    found = found_in(make(), delegate)
    assert [one.operators for one in found.suspects if one.how == "alone"] == [(i,) for i in places[opcode]]
    assert found.suspects[0].operators == places[opcode][:1]
    assert found.in_place is not None


def test_two_wrong_operators_are_both_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for opcode in (Op.DEPTHWISE_CONV_2D, Op.SOFTMAX):
        break_kernel(monkeypatch, "gpu", opcode)
    found = found_in(MODELS["between others"][0](), "gpu")
    assert [one.operators for one in found.suspects] == [(2,), (4,)]


@pytest.mark.parametrize(
    ("delegate", "opcode", "place"), [("cpu", Op.REVERSE_SEQUENCE, 2), ("gpu", Op.MAX_POOL_2D, 4)]
)
def test_an_operator_between_partitions_or_in_a_later_one_is_named(
    monkeypatch: pytest.MonkeyPatch, delegate: str, opcode: Op, place: int
) -> None:
    model = Network().conv().relu().reverse().conv().pool().softmax().model()
    break_kernel(monkeypatch, delegate, opcode)
    feeds = [np.random.default_rng(1).normal(size=(1, 8, 8, 16)).astype(np.float32)]
    found = bisect(
        model, feeds, "gpu", {**GPU, "max_delegated_partitions": 2, "cost_aware_partitioning": False}
    )
    assert [(one.operators, one.how) for one in found.suspects] == [((place,), "alone")]
    assert found.in_place is not None
    assert found.in_place.operators == (place,)


def test_fp16_is_judged_by_its_own_rule_and_every_layer_has_an_error() -> None:
    model = MODELS["between others"][0]()
    shape = (1, 8, 8, 16)
    feeds = [np.random.default_rng(1).normal(size=shape).astype(np.float32)]
    found = bisect(model, feeds, "gpu", {**GPU, "precision": "fp16"})
    assert found.suspects == ()
    assert "fp16" in found.rule
    assert found.errors[0] > 1e-5
    assert set(found.errors) == set(range(9))


FUSIONS: dict[str, tuple[Callable[[], Model], tuple[int, ...]]] = {
    "fuse_epilogue": (lambda: Network().pool().conv().relu().softmax().model(), (1, 2)),
    "fuse_swish": (lambda: Network().pool().swish().softmax().model(), (1, 2)),
    "fold_scale": (lambda: Network().softmax().gate().conv().pool().model(), (1, 2)),
}


@pytest.mark.parametrize("name", sweep(FUSIONS, "fuse_epilogue"))
def test_broken_fusions_are_named_where_their_operators_are_right_alone(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fuse = getattr(passes, name)

    def broken(graph: Graph, **more: Any) -> Graph:
        sources = {node.sources for node in graph.nodes}
        made = fuse(graph, **more)
        return made.with_nodes(
            node if node.sources in sources else replace(node, epilogue=(*node.epilogue, Step("NEG")))
            for node in made.nodes
        )

    broken.__name__ = name
    monkeypatch.setattr(passes, name, broken)
    make, operators = FUSIONS[name]
    found = found_in(make(), "gpu")
    assert [(one.operators, one.how) for one in found.suspects][:1] == [(operators, "fused")]


def test_the_first_one_is_written_as_a_model_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    break_kernel(monkeypatch, "gpu", Op.SOFTMAX)
    make, _ = MODELS["one of each"]
    file = tmp_path / "network.tflite"
    graph = make().subgraphs[0]
    network = Network().depthwise().pool().softmax()
    file.write_bytes(network.builder.write([network.end]))
    options = [word for name, value in GPU.items() for word in ("--option", f"{name}={value}")]
    call = ["bisect", str(file), "--out", str(tmp_path / "wrong"), *options]
    ran = CliRunner().invoke(model_verbs(), [*call, "--json"])
    assert ran.exit_code == 1, ran.output
    told = json.loads(ran.stdout)
    (suspect,) = told["suspects"]
    assert suspect["operators"] == [{"index": 2, "name": "SOFTMAX"}]
    written = Path(suspect["file"])
    (operator,) = read_model(written.read_bytes()).subgraphs[0].operators
    assert operator.opcode is graph.operators[2].opcode
    feeds = read_arrays(written.with_suffix(".npz"))
    assert [x.shape for x in feeds] == [(1, 8, 8, 16)]
    assert litert_runs(written.read_bytes(), feeds)["reference"][0].sum() == pytest.approx(64, rel=1e-5)
    shown = CliRunner().invoke(model_verbs(), call)
    assert shown.exit_code == 1
    assert "first: 2 SOFTMAX, alone" in shown.stdout


def test_a_fusion_becomes_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Network().conv().relu().model()
    found = found_in(model, "cpu")
    assert found.suspects == ()
    fusion = replace(_suspect(monkeypatch), operators=(0, 1))
    data, feeds = one_operator(model, fusion, found.values)
    assert [one.opcode for one in read_model(data).subgraphs[0].operators] == [Op.CONV_2D, Op.RELU]
    np.testing.assert_allclose(
        litert_runs(data, feeds)["reference"][0], found.values[model.subgraphs[0].outputs[0]], rtol=1e-6
    )


@pytest.mark.usefixtures("own_processes")
def test_a_model_that_litert_refuses_is_an_error() -> None:
    b = Builder()
    x, y = b.input(np.float32, (2,)), b.tensor(np.float32, (2,))
    b.operator(Op.CUSTOM, [x], [y], custom_code="NobodyHasThis")
    with pytest.raises(OracleError, match=r"LiteRT cannot run it: .*NobodyHasThis"):
        found_in(read_model(b.write([y])), "cpu")


def _suspect(monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as patched:
        break_kernel(patched, "cpu", Op.SOFTMAX)
        return found_in(Network().softmax().model(), "cpu").suspects[0]
