"""The measured loop on our own interpreter, and references made with it."""

from __future__ import annotations

import gc
import math
from dataclasses import replace

import numpy as np
import pytest

from runtime.delegates.cpu import CPU
from runtime.tools import benchmark, memory
from runtime.tools.benchmark import measure, start_cold
from runtime.tools.inputs import POOL_SIZE, InputRule
from runtime.tools.loading import Opener
from runtime.tools.loop_plan import LoopPlan
from runtime.tools.outputs import run_sets
from runtime.tools.reference import (
    ReferenceKind,
    load_reference,
    make_reference,
    reference_key,
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
    assert phases == ["init", "first", "warm-up", "invoke", "new inputs", "device times"]
    assert result.init_ns > 0
    assert result.first_ns > 0
    assert min(result.invoke_ns) > 0
    assert result.facts["stop"] == "count"
    assert result.delegation is None


def test_time_asks_for_more_runs_up_to_the_maximum(cpu, small_model):
    long = replace(PLAN, min_seconds=30.0, max_runs=25)
    result = measure(cpu, str(small_model), SHA, long)
    assert len(result.invoke_ns) == 25
    assert result.facts["stop"] in ("count", "converged")


def test_floor_is_measured_even_when_the_time_is_over(cpu, small_model):
    over = replace(PLAN, max_seconds=0.0, floor_runs=4)
    result = measure(cpu, str(small_model), SHA, over)
    assert len(result.invoke_ns) == 4
    assert result.facts["stop"] == "time"


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


def test_samples_carry_when_they_began_and_their_input(cpu, small_model):
    result = measure(cpu, str(small_model), SHA, PLAN)
    ends = [start + taken for start, taken in zip(result.start_ns, result.invoke_ns, strict=True)]
    assert result.start_ns[0] >= 0
    assert all(end <= after for end, after in zip(ends, result.start_ns[1:], strict=False))
    assert result.input_sets == POOL_SIZE


def test_a_calibration_finds_the_warm_up_that_all_processes_then_have(cpu, small_model):
    phases = []
    warm = replace(PLAN, warmup_runs=7)
    found = start_cold(cpu, str(small_model), SHA, on_phase=phases.append, plan=warm)
    assert phases == ["init", "first", "outputs", "calibration"]
    runs = int(found.facts["warmup_runs"])
    assert runs >= 7
    assert found.facts["steady_state"]
    assert found.warmup_ns == found.invoke_ns == ()
    for _ in range(2):
        assert len(measure(cpu, str(small_model), SHA, warm, warmup_runs=runs).warmup_ns) == runs
    without = start_cold(cpu, str(small_model), SHA, plan=replace(PLAN, warmup_runs=0))
    assert without.facts["warmup_runs"] == "0"


def test_a_model_that_does_not_become_steady_costs_few_looks_and_gets_the_plans_own_warm_up(
    cpu, small_model, monkeypatch
):
    looks = []
    monkeypatch.setattr(benchmark, "is_steady", lambda last: bool(looks.append(len(last))))
    found = start_cold(cpu, str(small_model), SHA, plan=replace(PLAN, warmup_runs=7))
    assert found.facts["warmup_runs"] == "7"
    assert found.facts["steady_state"].startswith("not reached in")
    runs = int(found.facts["steady_state"].split()[3])
    assert len(looks) < 40 + 12 * math.log(runs), "each look is at a tenth more runs"


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
    path = tmp_path / "references" / "one.npz"
    save_reference(path, made)
    loaded = load_reference(path)
    assert (loaded.kind, loaded.label, loaded.output_facts) == (made.kind, made.label, made.output_facts)
    assert loaded.pool_sha256 == made.pool_sha256 != ""
    assert len(loaded.outputs) == POOL_SIZE
    for got, expected in zip(loaded.outputs, made.outputs, strict=True):
        assert np.array_equal(got[0], expected[0])
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    again = tmp_path / "again.npz"
    save_reference(again, made)
    assert again.read_bytes() == path.read_bytes(), "agents compare what they made by its hash"


@pytest.mark.parametrize("where", [0.0, 0.3, 0.6, 0.9, 0.999])
def test_a_damaged_reference_is_not_taken_for_one(small_model, tmp_path, where):
    path = tmp_path / "one.npz"
    save_reference(path, make_reference(str(small_model), SHA, {}, ReferenceKind.CPU))
    data = path.read_bytes()
    path.write_bytes(data[: int(where * len(data))])
    with pytest.raises(ValueError, match=r"no reference|pickle|zip|No data left"):
        load_reference(path)


def test_reference_depends_on_everything_it_was_made_from():
    base = (SHA, {}, ReferenceKind.CPU, "1")
    others = [
        ("cd" * 32, {}, ReferenceKind.CPU, "1"),
        (SHA, {"x": InputRule(seed=1)}, ReferenceKind.CPU, "1"),
        (SHA, {}, ReferenceKind.XNNPACK, "1"),
        (SHA, {}, ReferenceKind.CPU, "2"),
        (SHA, {}, ReferenceKind.CPU, "1", 1),
    ]
    assert len({reference_key(*arguments) for arguments in [base, *others]}) == 6
    assert reference_key(*base) == reference_key(*base)
