"""The measured loop on our own interpreter, and references made with it."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest

from runtime.delegates.cpu import CPU
from runtime.tools import memory
from runtime.tools.benchmark import LoopPlan, measure, start_cold
from runtime.tools.inputs import POOL_SIZE, InputRule
from runtime.tools.loading import Opener
from runtime.tools.outputs import run_sets
from runtime.tools.reference import (
    ReferenceKind,
    load_reference,
    make_reference,
    reference_path,
    save_reference,
)

SHA = "ab" * 32
PLAN = LoopPlan(
    warmup_runs=3, warmup_seconds=0.0, min_runs=10, max_runs=50, min_seconds=0.0, max_seconds=60.0
)


@pytest.fixture
def cpu() -> Opener:
    return Opener.prepare(CPU, {})


def test_counts_follow_the_plan(cpu, small_model):
    phases = []
    result = measure(cpu, str(small_model), SHA, PLAN, on_phase=phases.append)
    assert len(result.warmup_ns) == 3
    assert len(result.invoke_ns) == 10
    assert phases == ["init", "first", "warm-up", "invoke"]
    assert result.init_ns > 0
    assert result.first_ns > 0
    assert min(result.invoke_ns) > 0
    assert result.facts["stop"] == "fulfilled"
    assert result.delegation is None


def test_time_asks_for_more_runs_up_to_the_maximum(cpu, small_model):
    long = replace(PLAN, min_seconds=30.0, max_runs=25)
    result = measure(cpu, str(small_model), SHA, long)
    assert len(result.invoke_ns) == 25
    assert result.facts["stop"] == "max_runs"


def test_floor_is_measured_even_when_the_time_is_over(cpu, small_model):
    over = replace(PLAN, max_seconds=0.0, floor_runs=4)
    result = measure(cpu, str(small_model), SHA, over)
    assert len(result.invoke_ns) == 4
    assert result.facts["stop"] == "max_seconds"


def test_outputs_of_the_first_and_of_the_last_invoke_are_kept(cpu, small_model):
    result = measure(cpu, str(small_model), SHA, PLAN)
    assert result.last_set == 9 % POOL_SIZE
    first, last = result.outputs
    fresh = start_cold(cpu, str(small_model), SHA).outputs
    assert np.array_equal(first[0], fresh[0][0])
    assert np.array_equal(last[0], fresh[result.last_set][0])


def test_a_cold_start_times_its_start_alone_and_runs_every_input_set(cpu, small_model):
    phases = []
    result = start_cold(cpu, str(small_model), SHA, on_phase=phases.append)
    assert phases == ["init", "first", "outputs"]
    assert result.init_ns > 0
    assert result.first_ns > 0
    assert result.memory_peak_bytes >= 0
    assert result.warmup_ns == result.invoke_ns == ()
    expected = run_sets(cpu, str(small_model), SHA).sets
    assert [y[0].tobytes() for y in result.outputs] == [r[0].tobytes() for r in expected]
    assert len({values[0].tobytes() for values in expected}) == POOL_SIZE


def test_collector_runs_again_after_measuring(cpu, small_model):
    assert gc.isenabled()
    measure(cpu, str(small_model), SHA, PLAN)
    assert gc.isenabled()


def test_rule_resizes_the_input(cpu, small_model):
    result = measure(cpu, str(small_model), SHA, PLAN, {"x": InputRule(shape=(3, 4, 4, 8))})
    assert result.outputs[0][0].shape == (3, 4, 4, 8)


def test_peak_of_memory_sees_what_was_freed():
    memory.reset_peak()
    before = memory.resident_bytes()
    hoard = np.ones(64 << 20, np.uint8)
    grown = memory.peak_bytes() - before
    del hoard
    assert grown >= 60 << 20
    assert memory.peak_bytes() - before >= 60 << 20


def test_reference_survives_its_cache(small_model, tmp_path):
    made = make_reference(str(small_model), SHA, {}, ReferenceKind.CPU)
    path = reference_path(tmp_path / "references", SHA, {}, ReferenceKind.CPU, "1")
    save_reference(path, made)
    loaded = load_reference(path)
    assert (loaded.kind, loaded.label, loaded.output_facts) == (made.kind, made.label, made.output_facts)
    assert len(loaded.outputs) == POOL_SIZE
    for got, expected in zip(loaded.outputs, made.outputs, strict=True):
        assert np.array_equal(got[0], expected[0])
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_reference_depends_on_everything_it_was_made_from(tmp_path):
    base = (tmp_path, SHA, {}, ReferenceKind.CPU, "1")
    others = [
        (tmp_path, "cd" * 32, {}, ReferenceKind.CPU, "1"),
        (tmp_path, SHA, {"x": InputRule(seed=1)}, ReferenceKind.CPU, "1"),
        (tmp_path, SHA, {}, ReferenceKind.XNNPACK, "1"),
        (tmp_path, SHA, {}, ReferenceKind.CPU, "2"),
    ]
    assert len({reference_path(*arguments) for arguments in [base, *others]}) == 5
    assert reference_path(*base) == reference_path(*base)
