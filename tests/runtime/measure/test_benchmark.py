"""The measured loop on our own interpreter, and references made with it."""

from __future__ import annotations

import gc
import math
import time
from types import SimpleNamespace

import numpy as np
import pytest

from runtime.delegates.cpu import CPU
from runtime.measure import memory, warm_up
from runtime.measure.benchmark import Session, measure, start_cold
from runtime.measure.inputs import POOL_SIZE, InputRule, make_pool
from runtime.measure.loading import Opener, Subject
from runtime.measure.loop import Loop
from runtime.measure.outputs import run_sets
from runtime.measure.reference import (
    ReferenceKind,
    load_reference,
    make_reference,
    reference_key,
    save_reference,
)
from runtime.measure.warm_up import WarmUp

SHA = "ab" * 32
TIMED = {"warmup_runs": 3, "slices": 2, "runs": 5}
WARM = WarmUp(7, 0.0)


@pytest.fixture
def cpu() -> Opener:
    return Opener.prepare(CPU, {})


def test_counts_are_those_asked_for(cpu, small_model):
    phases = []
    result = measure(Subject(cpu, str(small_model), SHA), **TIMED, on_phase=phases.append)
    assert len(result.warmup_ns) == 3
    assert len(result.invoke_ns) == 10
    assert phases == ["init", "first", "warm-up", "invoke", "new inputs", "device times"]
    assert result.init_ns > 0
    assert result.first_ns > 0
    assert min(result.invoke_ns) > 0
    assert result.delegation is None


def test_untimed_invokes_in_front_of_a_slice_shift_no_input(cpu, small_model):
    opener = Opener.prepare(CPU, {})
    opened = opener.open(str(small_model), {})
    pool = make_pool(opened.model.get_input_details(), SHA, {})
    loop = Loop(opened.model, pool)
    fed = []
    real = opened.model.set_tensor
    loop._model = SimpleNamespace(  # which inputs it feeds is the point
        set_tensor=lambda index, value: (
            fed.append(next(k for k, v in enumerate(pool.sets) if v[0] is value)) or real(index, value)
        ),
        invoke=opened.model.invoke,
        get_tensor=opened.model.get_tensor,
    )
    loop.run(3, untimed=2)
    loop.run(2, untimed=1)
    last = POOL_SIZE - 1
    assert fed == [last - 1, last, 0, 1, 2, 2, 3, 4 % POOL_SIZE]
    assert loop.last_set == 4 % POOL_SIZE


def test_a_session_knows_how_long_an_invoke_takes(cpu, small_model):
    session = Session(Subject(cpu, str(small_model), SHA), 20)
    times = session.slice(50)
    assert 0.1 < float(np.median(times.invoke_ns)) / session.run_ns < 10
    assert Session(Subject(cpu, str(small_model), SHA), 0).run_ns > 0, (
        "by the first invoke, without a warm-up"
    )


def test_outputs_of_the_first_and_of_the_last_invoke_are_kept(cpu, small_model):
    result = measure(Subject(cpu, str(small_model), SHA), **TIMED)
    assert result.last_set == 9 % POOL_SIZE
    first, last = result.outputs
    fresh = start_cold(Subject(cpu, str(small_model), SHA)).outputs
    assert np.array_equal(first[0], fresh[0][0])
    assert np.array_equal(last[0], fresh[result.last_set][0])


def test_a_cold_start_times_its_start_alone_and_runs_every_input_set(cpu, small_model):
    phases = []
    result = start_cold(Subject(cpu, str(small_model), SHA), on_phase=phases.append)
    assert phases == ["init", "first", "outputs"]
    assert result.init_ns > 0
    assert result.first_ns > 0
    assert result.memory_peak_bytes >= 0
    assert result.warmup_ns == result.invoke_ns == ()
    expected = run_sets(Subject(cpu, str(small_model), SHA)).sets
    assert [y[0].tobytes() for y in result.outputs] == [r[0].tobytes() for r in expected]
    assert len({values[0].tobytes() for values in expected}) == POOL_SIZE


def test_samples_carry_when_they_began_and_their_input(cpu, small_model):
    result = measure(Subject(cpu, str(small_model), SHA), **TIMED)
    ends = [start + taken for start, taken in zip(result.start_ns, result.invoke_ns, strict=True)]
    assert result.start_ns[0] >= 0
    assert all(end <= after for end, after in zip(ends, result.start_ns[1:], strict=False))
    assert result.input_sets == POOL_SIZE


def test_a_calibration_finds_the_warm_up_that_all_processes_then_have(cpu, small_model):
    phases = []
    found = start_cold(Subject(cpu, str(small_model), SHA), on_phase=phases.append, plan=WARM)
    assert phases == ["init", "first", "outputs", "calibration"]
    assert int(found.facts["warmup_runs"]) >= 7
    assert found.facts["steady_state"]
    assert found.warmup_ns == found.invoke_ns == ()
    without = start_cold(Subject(cpu, str(small_model), SHA), plan=WarmUp(0, 0.0))
    assert without.facts["warmup_runs"] == "0"


def test_a_model_that_does_not_become_steady_costs_few_looks_and_gets_the_plans_own_warm_up(
    cpu, small_model, monkeypatch
):
    looks = []
    monkeypatch.setattr(warm_up, "is_steady", lambda last: bool(looks.append(len(last))))
    found = start_cold(Subject(cpu, str(small_model), SHA), plan=WARM)
    assert found.facts["warmup_runs"] == "7"
    assert found.facts["steady_state"].startswith("not reached in")
    runs = int(found.facts["steady_state"].split()[3])
    assert len(looks) < 40 + 12 * math.log(runs), "each look is at a tenth more runs"


def test_an_invoke_is_over_once_its_outputs_are_read():
    """Of a delegate that only enqueues, the reading of the outputs waits for the work."""

    class Enqueues:
        def set_tensor(self, index, value): ...

        def invoke(self): ...

        def get_tensor(self, index):
            time.sleep(0.02)
            return np.zeros(1, np.float32)

        def get_input_details(self):
            return [{"index": 0}]

        def get_output_details(self):
            return [{"index": 1}]

    loop = Loop(Enqueues(), SimpleNamespace(sets=[(np.zeros(1, np.float32),)]))
    assert loop.once(0)[0] >= 20_000_000
    assert loop.run(2).invoke_ns.min() >= 20_000_000


def test_collector_runs_again_after_measuring(cpu, small_model):
    assert gc.isenabled()
    measure(Subject(cpu, str(small_model), SHA), **TIMED)
    assert gc.isenabled()


def test_rule_resizes_the_input(cpu, small_model):
    result = measure(Subject(cpu, str(small_model), SHA, {"x": InputRule(shape=(3, 4, 4, 8))}), **TIMED)
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
