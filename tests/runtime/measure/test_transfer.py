"""The copies of a run to a device and back, and the same run on buffers; or a reason why they are unknown."""

from __future__ import annotations

import pytest

from runtime.delegates.gpu.backends.opencl.recording import OpenClRecording
from runtime.interpreter.state import Slot
from runtime.measure import transfer as transfer_module
from runtime.measure.benchmark import measure, start_cold
from runtime.measure.loading import Opener, Subject
from tests.runtime.tools.plan_models import two_partitions

SHA = "cd" * 32
BYTES = 4 * 1 * 4 * 4 * 8
"""Of the small model's input, and of its output."""


def measured(kind, path, **options):
    return measure(Subject(Opener.prepare(kind, options), str(path), SHA), warmup_runs=2, runs=40)


def test_copies_and_runs_on_buffers_are_within_invokes_and_in_no_sample(small_model):
    found = measured("gpu", small_model, tuning="none")
    told = found.transfer
    assert (told.sizes, told.missing) == ({"in": BYTES, "out": BYTES}, {})
    ins, outs, whole = (told.times_ns[name] for name in ("in", "out", "copied"))
    assert len(ins) == len(outs) == len(whole)
    assert all(0 < a < ns and 0 < b < ns and a + b < ns for a, b, ns in zip(ins, outs, whole, strict=True))
    assert min(told.times_ns["bound"]) > 0
    assert len(found.invoke_ns) == 40
    assert (
        start_cold(Subject(Opener.prepare("gpu", {"tuning": "none"}), str(small_model), SHA)).transfer.sizes
        == {}
    )


def test_a_model_in_parts_has_the_copies_of_all_its_partitions_and_no_run_on_buffers(tmp_path):
    path = tmp_path / "parts.tflite"
    path.write_bytes(two_partitions())
    parts = {"max_delegated_partitions": 2, "cost_aware_partitioning": False}
    told = measured("gpu", path, tuning="none", **parts).transfer
    assert told.sizes == {"in": 4 * 8 * 8 * (5 + 6), "out": 4 * (8 * 8 * 6 + 4 * 4 * 64)}
    assert "bound" not in told.times_ns
    assert "starts only models that it runs whole" in told.missing["bound"]


@pytest.mark.parametrize(
    ("kind", "why"),
    [("cpu", "cpu computes in the host's memory"), ("litert", "litert does not tell what it copies")],
)
def test_who_copies_nothing_or_does_not_tell_says_why(small_model, kind, why):
    told = measured(kind, small_model).transfer
    assert (told.times_ns, told.missing) == ({}, {"copies": why, "bound": f"{kind} runs on no buffers"})


def test_a_run_on_buffers_that_gives_something_else_is_none(small_model, monkeypatch):
    real = Slot.run_again

    def wrong(self):
        real(self)
        self._read[0].flat[0] += 1

    monkeypatch.setattr(Slot, "run_again", wrong)
    told = measured("gpu", small_model, tuning="none").transfer
    assert told.missing == {"bound": "runs on buffers give something else than runs that copy"}
    assert "bound" not in told.times_ns
    assert told.sizes["in"] == BYTES


def test_a_model_that_takes_the_pass_s_time_alone_is_invoked_once_and_runs_on_no_buffers(
    small_model, monkeypatch
):
    real, ran = transfer_module._copied, []

    def counted(*given):
        ran.append(given)
        return real(*given)

    monkeypatch.setattr(transfer_module, "_copied", counted)
    monkeypatch.setattr(Slot, "start", lambda *_: pytest.fail("no time is left"))
    monkeypatch.setattr(transfer_module, "SHARE", 0)
    monkeypatch.setattr(transfer_module, "_LEAST_NS", 0)
    found = measured("gpu", small_model, tuning="none")
    assert len(ran) == len(found.transfer.times_ns["copied"]) == 1
    assert found.transfer.missing == {"bound": "an invoke took the 0 ms that further invokes may take"}


def test_only_the_pass_waits_for_copies_that_a_device_makes_by_itself(small_model, monkeypatch):
    calls = []
    for name in ("write", "finish", "run"):
        real = getattr(OpenClRecording, name)

        def noted(self, *given, _real=real, _name=name):
            calls.append(_name)
            return _real(self, *given)

        monkeypatch.setattr(OpenClRecording, name, noted)
    monkeypatch.setattr(OpenClRecording, "queues_uploads", True)
    copied = len(measured("gpu", small_model, tuning="none").transfer.times_ns["copied"])
    told = " ".join(calls)
    assert told.count("write finish run") >= copied > 0
    assert told.count("write run") >= 40
