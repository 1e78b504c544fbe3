"""The memory plan and the advice of `farm model info`, against what the interpreter does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.kind_models import KINDS as KIND_MODELS
from benchmarks.kind_models import ranges
from runtime.api.interpreter import Interpreter
from runtime.delegates.registry import delegate_descriptor
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.tools.model_info import advice_for, delegate_views, measured_kinds, memory_plan, model_facts
from runtime.tools.model_info.delegation import delegate_view
from runtime.tools.verbs import model_verbs
from tests.needs import REPOSITORY
from tests.runtime.demo_models import demo_model
from tests.runtime.models import Builder, per_tensor

Op = BuiltinOperator
RNG = np.random.default_rng(0)
WEIGHTS = RNG.uniform(-1, 1, (4, 8)).astype(np.float32)


def dense(b: Builder, x: int, weights: int) -> bytes:
    y = b.tensor(np.float32, (1, 4))
    b.operator(Op.FULLY_CONNECTED, [x, weights, -1], [y])
    return b.write([y])


def float32() -> bytes:
    b = Builder()
    return dense(b, b.input(np.float32, (1, 8)), b.constant(WEIGHTS))


def float16() -> bytes:
    b = Builder()
    x, wide = b.input(np.float32, (1, 8)), b.tensor(np.float32, (4, 8))
    b.operator(Op.DEQUANTIZE, [b.constant(WEIGHTS.astype(np.float16))], [wide], version=3)
    return dense(b, x, wide)


def dynamic_range() -> bytes:
    b = Builder()
    levels = np.round(WEIGHTS * 127).astype(np.int8)
    return dense(b, b.input(np.float32, (1, 8)), b.constant(levels, per_tensor(1 / 127)))


def integer() -> bytes:
    b = Builder()
    x = b.input(np.int8, (1, 8), per_tensor(0.01))
    w = b.constant(np.round(WEIGHTS * 127).astype(np.int8), per_tensor(1 / 127))
    y = b.tensor(np.int8, (1, 4), per_tensor(0.05))
    b.operator(Op.FULLY_CONNECTED, [x, w, -1], [y], version=4)
    return b.write([y])


def quantisation_aware() -> bytes:
    b = Builder()
    x, seen = b.input(np.float32, (1, 8)), b.tensor(np.float32, (1, 8))
    b.operator(Op.FAKE_QUANT, [x], [seen], {"min": -1.0, "max": 1.0, "num_bits": 8, "narrow_range": False})
    return dense(b, seen, b.constant(WEIGHTS))


KINDS: dict[str, Callable[[], bytes]] = {
    "float32": float32,
    "fp16 weights": float16,
    "dynamic-range": dynamic_range,
    "integer": integer,
    "quantisation-aware": quantisation_aware,
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_of_a_model_and_the_delegates_that_take_it_are_told(kind, tmp_path):
    data = KINDS[kind]()
    path = tmp_path / "model.tflite"
    path.write_bytes(data)
    model = read_model(data)
    assert model_facts(model, len(data)).kind == kind
    total = len(model.subgraphs[0].operators)
    views = {view.delegate: view for view in delegate_views(path, total)}
    assert views["cpu"].taken == total
    assert views["gpu"].taken == total or views["gpu"].reasons or views["gpu"].obstacle
    assert {"cpu", "gpu", "litert"} <= set(views)


@pytest.mark.parametrize("kind", KINDS)
def test_the_advice_names_measurements_and_their_source(kind):
    advice = advice_for(kind)
    assert advice.kind == kind
    assert advice.note
    if advice.measured is not None:
        assert (REPOSITORY / advice.measured.source).is_file()
        assert advice.measured.machine
        assert "cpu" in advice.order
        times = [advice.measured.milliseconds[name] for name in advice.order]
        assert times == sorted(times)
        assert not set(advice.order) & set(advice.measured.refused)


def test_the_note_on_float_models_promises_no_precision_that_the_gpu_delegate_refuses():
    choices = delegate_descriptor("gpu").options["precision"].choices
    promised = {"fp16", "bf16"} & set(re.findall(r"\w+", advice_for("float32").note))
    assert promised <= set(choices)


def test_a_measured_kind_has_a_figure_of_every_delegate_or_the_reason():
    for one in measured_kinds():
        told = {*one.measured.milliseconds, *one.measured.refused}
        assert {"cpu", "gpu", "litert-xnnpack", "litert-gpu", "openvino"} <= told
        assert all(one.measured.refused.values())
        assert {"cpu", "gpu"} <= set(one.measured.milliseconds)


TAKEN = {"float32": 4, "fp16_weights": 10, "dynamic_range": 4, "integer": 4, "quantisation_aware": 1}


@pytest.mark.parametrize("name", TAKEN)
def test_the_gpu_delegate_takes_the_files_of_the_kinds_as_the_measured_table_says(name):
    """An older table said that `gpu` refuses integers, below a line that said that it takes all of them."""
    path = REPOSITORY / "examples/kinds" / f"{name}.tflite"
    model = read_model(path.read_bytes())
    kind, total = model_facts(model, path.stat().st_size).kind, len(model.subgraphs[0].operators)
    view = delegate_view("gpu", path, total, {})
    assert view.taken == TAKEN[name]
    measured = advice_for(kind).measured
    if measured is not None:
        assert measured.model == name
        assert measured.partial.get("gpu", f"{total}/{total}") == f"{view.taken}/{total}"
        assert "gpu" not in measured.refused


def test_the_files_of_the_kinds_are_those_that_their_program_writes(tmp_path):
    ranged = ranges()
    for name, make in KIND_MODELS.items():
        written = read_model(make(ranged).build()).subgraphs[0]
        kept = read_model((REPOSITORY / f"examples/kinds/{name}.tflite").read_bytes()).subgraphs[0]
        assert [o.name for o in written.operators] == [o.name for o in kept.operators]
        assert [t.shape for t in written.tensors] == [t.shape for t in kept.tensors]


def test_the_table_of_kinds_has_a_row_for_each_that_was_measured_and_names_the_others():
    shown = CliRunner().invoke(model_verbs(), ["kinds"])
    assert shown.exit_code == 0, shown.output
    listed = [one.kind for one in measured_kinds()]
    rows = shown.stdout.splitlines()[2 : 2 + len(listed)]
    assert [row[:20].strip() for row in rows] == listed
    others = [kind for kind in KINDS if kind not in listed]
    assert (f"not measured yet: {', '.join(others)}" in shown.stdout) == bool(others)
    assert "no figure of litert-gpu: " in shown.stdout
    told = json.loads(CliRunner().invoke(model_verbs(), ["kinds", "--json"]).stdout)
    assert [one["kind"] for one in told] == listed


@pytest.mark.parametrize(
    "name", ["torchvision_squeezenet1_1", "torchvision_mobilenet_v2__static_int8", "face_landmark"]
)
def test_the_memory_plan_is_the_one_that_the_interpreter_makes(name):
    data = demo_model(name)
    interpreter = Interpreter(model_content=data)
    interpreter.allocate_tensors()
    execution = interpreter._primary.execution
    assert execution is not None
    plan = memory_plan(read_model(data).subgraphs[0])
    assert plan.arena_bytes == execution.arena.size
    assert {t.index: t.offset for t in plan.tensors} == dict(execution.arena.offsets)


def test_tensors_that_live_at_once_lie_apart_and_the_peak_is_theirs():
    plan = memory_plan(read_model(demo_model("torchvision_squeezenet1_1")).subgraphs[0])
    for a, b in combinations(plan.tensors, 2):
        if a.first <= b.last and b.first <= a.last:
            assert a.offset + a.size <= b.offset or b.offset + b.size <= a.offset
    alive = [t for t in plan.tensors if t.first <= plan.peak_operator <= t.last]
    assert sum(-(-t.size // 64) * 64 for t in alive) == plan.peak_bytes
    assert plan.peak_bytes <= plan.arena_bytes <= plan.unshared_bytes + 64 * len(plan.tensors)


def test_the_command_tells_plan_and_advice(tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(float16())
    words = ["info", str(path), "--no-delegates"]
    shown = CliRunner().invoke(model_verbs(), words)
    assert shown.exit_code == 0, shown.output
    assert "memory plan: 0.1 KiB for 2 tensors" in shown.stdout
    assert "suits fp16 weights models" in shown.stdout
    ran = CliRunner().invoke(model_verbs(), [*words, "--json"])
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    assert told["memory"]["arena_bytes"] == 128
    assert [t["first"] for t in told["memory"]["tensors"]] == [-1, -1]
    assert told["suits"]["kind"] == "fp16 weights"
    assert TensorType.FLOAT16.name.lower() in " ".join(told["quantization"])
