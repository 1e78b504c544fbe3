"""The first contact with a GPU: a step may fail, and each expectation stands beside its figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import first_contact
from benchmarks.first_contact import Contact
from benchmarks.first_contact_report import (
    ENQUEUE_US,
    GAP_US,
    Prediction,
    fma_shares,
    page,
    predictions,
)
from benchmarks.gpu_machine_code import Compiled
from benchmarks.gpu_record import Record
from benchmarks.gpu_rows import Row
from benchmarks.output import FailedError, LateError
from runtime.delegates.gpu.settings.options import INTERFACES

HOST = {
    "device": "GPU", "platform": "P", "driver": "1", "is_gpu": True, "target": "sm_86",
    "peaks": {"gflops": 1000.0, "gigabytes": 100.0},
    "us": {"enqueue of a launch": 8.0, "a launch in a queue": 11.0},
}  # fmt: skip
MODEL = "torchvision_resnet18"
DEVICES = [{"api": "opencl", "facts": {"vulkan_adapter": "llvmpipe"}}]
ABSENT = "the probe found no device of this interface"


def answering(answers: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    """Return a process that answers by its step, or fails."""

    def run(module: str, step: str, *rest: str, limit_s: float) -> dict[str, Any]:
        assert module == "first_contact_steps"
        assert 0 < limit_s <= 600
        found: dict[str, Any] | None = answers.get(step)
        if found is None:
            raise FailedError(f"no end within {limit_s:g} s")
        return found | {"asked": rest, "backend": rest[-1] if rest else ""}

    return run


def test_a_step_that_fails_is_told_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_contact, "in_a_process", answering({"drivers": {"libraries": {}}}))
    monkeypatch.setattr(first_contact, "_probe", lambda _: {"devices": DEVICES})
    contact = Contact(2, 10)
    contact.run(("drivers", "probe", "host", "gemm"), (MODEL,))
    ended = {step.name: (step.status, step.why) for step in contact.steps}
    assert ended == {
        "drivers": ("done", ""),
        "probe": ("done", ""),
        **dict.fromkeys(
            ("models, cuda", "models, opengl", "models, metal", "models, d3d12"), ("skipped", ABSENT)
        ),
        "host": ("failed", "no end within 60 s"),
        "gemm": ("failed", "the peak of the device, by which its size is chosen, is not known"),
        f"{MODEL}, opencl": ("failed", "no end within 60 s"),
        f"{MODEL}, vulkan": ("failed", "no end within 60 s"),
    }


def test_cuda_is_tried_stage_by_stage_where_its_library_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    loads = iter((True, False))

    def run(module: str, stage: str, *, limit_s: float) -> dict[str, Any]:
        if module == "first_contact_steps":
            return {"libraries": {"libcuda.so.1": next(loads)}}
        tried.append(stage)
        if stage == "ptx":
            raise FailedError("no clang")
        return {}

    monkeypatch.setattr(first_contact, "in_a_process", run)
    ended = []
    for _ in range(2):
        contact = Contact(None, 10)
        contact.run(("drivers", "cuda"), ())
        ended.append([(step.name, step.status, step.why) for step in contact.steps[1:]])
    assert tried == ["driver", "context", "ptx", "kernel", "graph", "matrices", "halves", "bytes"]
    assert ended[0][1:4] == [
        ("cuda context", "done", ""),
        ("cuda ptx", "failed", "no clang"),
        ("cuda kernel", "done", ""),
    ]
    assert ended[1] == [("cuda", "skipped", "libcuda.so.1 does not load")]


@pytest.mark.exhaustive
def test_the_step_of_the_sandbox_ends_with_its_ratios() -> None:
    contact = Contact(300, 300)
    contact.run(("sandbox",), ())
    (step,) = contact.steps
    assert (step.status, step.why) == ("done", "")
    assert step.figures["rows"]


def test_what_has_no_time_left_is_skipped_and_says_so() -> None:
    contact = Contact(None, 0)
    contact.run(("drivers",), (MODEL,))
    assert {(step.status, step.why) for step in contact.steps} == {("skipped", "the time was over")}
    assert len(contact.steps) == 1 + len(INTERFACES)


def test_a_model_that_an_interface_is_too_slow_for_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the operations that OpenCL counted, and the seconds of the largest model there; that is no fault."""

    def run(module: str, step: str, *rest: str, limit_s: float) -> dict[str, Any]:
        model, backend = rest[1], rest[3]
        operations = {"small": 1e9, "large": 100e9}[model]
        run_us = 1e3 if backend == "opencl" else 1e6
        return {
            "model": model,
            "backend": backend,
            "run_us": run_us,
            "rows": [{"flops": operations}],
        }

    monkeypatch.setattr(first_contact, "in_a_process", run)
    monkeypatch.setattr(first_contact, "_probe", lambda _: {"devices": DEVICES})
    contact = Contact(None, 10)
    contact.run(("probe",), ("small", "large"))
    ended = {step.name: (step.status, step.why) for step in contact.steps if step.why != ABSENT}
    why = "it would take about 800 s on llvmpipe, and has 60"
    assert ended == {
        "probe": ("done", ""),
        "small, opencl": ("done", ""),
        "large, opencl": ("done", ""),
        "small, vulkan": ("done", ""),
        "large, vulkan": ("skipped", why),
    }


@pytest.mark.parametrize(
    ("minutes", "ended"),
    [(10, ("failed", "no end")), (0.5, ("skipped", "the time was over: no end"))],
)
def test_a_step_that_the_end_of_the_time_cuts_has_not_failed(
    monkeypatch: pytest.MonkeyPatch, minutes: float, ended: tuple[str, str]
) -> None:
    def run(module: str, step: str, *rest: str, limit_s: float) -> dict[str, Any]:
        raise LateError("no end")

    monkeypatch.setattr(first_contact, "in_a_process", run)
    contact = Contact(None, minutes)
    contact.run(("host",), ())
    (step,) = contact.steps
    assert (step.status, step.why) == ended


def test_every_expectation_stands_beside_its_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Record.read().rows.values()
    family = next(iter(rows)).family
    share = fma_shares(rows, "sm_86")[family]
    tile = {"tile": "m64n64", "precision": "fp32", "function": family, "gflops": 400.0}
    row = {"name": "f32_copy", "us": 30.0, "flops": 0, "bytes": 1_000_000}
    model = {
        "model": MODEL,
        "first_s": 1.0,
        "run_us": 50.0,
        "error": 0.0,
        "rows": [row] * 3,
    }
    answers = {"host": HOST, "gemm": {"side": 512, "tiles": [tile]}, "model": model}
    monkeypatch.setattr(first_contact, "in_a_process", answering(answers))
    contact = Contact(0, 10)
    contact.run(("host", "gemm"), (MODEL,))
    told = list(predictions(contact.steps))
    assert told == [
        Prediction("host, an enqueue", "us", ENQUEUE_US, 8.0),
        Prediction("device, a launch in a queue", "us", GAP_US, 11.0),
        Prediction("product, m64n64, fp32", "GFLOP/s", round(1000 * share, 1), 400.0),
        Prediction(f"{MODEL}, 3 kernels", "us", 30, 90.0),
        Prediction(f"{MODEL}, a run", "us", 37, 50.0),
    ]
    lines = page(contact.steps, told)
    assert "Device: GPU (P, driver 1), a GPU." in lines
    assert f"| {MODEL}, a run | us | 37 | 50.0 | 1.35 |" in lines
    assert contact.figures("gemm")["asked"] == ("--device", "0", "--gflops", "1000.0")


def test_the_nearest_target_that_was_compiled_is_taken() -> None:
    shares = {"sm_75": 0.1, "sm_80": 0.2, "sm_90": 0.3, "gfx90a": 0.4, "gfx1100": 0.5}
    rows = [Row("run_f_0", 256, {}, {name: Compiled(0, 0, 0, 0, 0, one) for name, one in shares.items()})]
    found = [fma_shares(rows, one)["f"] for one in ("sm_89", "sm_100", "gfx1100", "")]
    assert found == [0.2, 0.3, 0.5, 0.3]
