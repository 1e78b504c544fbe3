"""`benchmark_model` of attached devices: how an attempt calls it, and what counts of what it prints."""

from __future__ import annotations

import numpy as np
import pytest

from agent.attached.hosts import OverSsh
from agent.attached.remote import Answer, Remote
from agent.attempt.files import AttemptFile, mark_cancelled
from agent.runner.attached.arm import ToolArm
from agent.runner.attached.figures import measurement_of, why_not_counted
from agent.runner.attached.flags import tool_call
from agent.runner.turns.comparison import CancelledError
from agent.wire.measurement import BlockFigure
from agent.wire.plan import InputData, InputSpec
from runtime.common.benchmark_log import TOOL, LogError, read_log
from runtime.errors import NoDeviceError
from tests.agent.attached.devices import DEVICE, PRINTS
from tests.agent.embedded_agent import job

PARTIAL = (
    "Explicitly applied GPU delegate, and the model graph will be partially executed by the delegate w/ 2 "
    "delegate kernels.\n"
)


@pytest.mark.parametrize(
    ("printed", "kind", "text"),
    [
        (PRINTS, "litert", None),
        (PRINTS.replace("median=100 ", ""), "litert", "prints no median"),
        (PRINTS.replace("median=100 ", "median=0 "), "litert", "below the microsecond"),
        (PRINTS.replace("median=100 ", "median=nan "), "litert", "prints no median"),
        (PRINTS.replace("median=100 ", "median=1e99 "), "litert", "above days"),
        (f"WARN: Unconsumed cmdline flags: --use_xnnpack\n{PRINTS}", "litert", "does not know --use_xnnpack"),
        (PRINTS, "litert-gpu", "nothing of the model on its GPU"),
        (PARTIAL + PRINTS, "litert-gpu", None),
    ],
)
def test_a_run_counts_that_is_the_delegates_and_has_a_median(printed, kind, text):
    (run,) = read_log(printed)
    why = why_not_counted(run, kind)
    assert (why is None) if text is None else (why is not None and text in why.reason.text)


def test_each_block_weighs_the_same_in_the_mean_however_many_runs_it_has(tiny):
    attempt = AttemptFile(
        job=job(("0" * 64, 1), delegate="litert", device="board"), device=DEVICE, model_path=str(tiny),
        references="",
    )  # fmt: skip
    slow = PRINTS.replace("count=50", "count=10").replace("100.5", "300.5")
    runs = [run for printed in (PRINTS, slow) for run in read_log(printed)]
    blocks = [BlockFigure(p50_ns=1e5, rounds=1)] * 2
    found = measurement_of(attempt, tool_call(attempt, 4), {TOOL: "2.3.0"}, runs, blocks)
    assert (found.latency_ms.mean, found.samples) == (pytest.approx(0.2005), 60)


@pytest.mark.parametrize("number", ["1.2.3", "1e999", "nan", "inf", "9" * 400])
def test_a_log_with_a_number_that_is_none_is_no_log(number):
    with pytest.raises(LogError):
        list(read_log(PRINTS.replace("Init: 1000", f"Init: {number}")))
    with pytest.raises(LogError):
        list(read_log(PRINTS.replace("count=50", f"count={number}")))


def test_a_log_with_more_memory_than_a_machine_has_is_no_log():
    footprint = "Memory footprint delta from the start of the tool (MB): init=1 overall="
    assert [run.memory_bytes for run in read_log(f"{PRINTS}{footprint}2.5")] == [int(2.5 * 2**20)]
    with pytest.raises(LogError, match="no machine has"):
        list(read_log(f"{PRINTS}{footprint}{'9' * 400}"))


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("litert", {}, {"num_threads": "4", "use_xnnpack": "true"}),
        ("litert", {"resolver": "builtin", "threads": 2}, {"num_threads": "2", "use_xnnpack": "false"}),
        ("litert-gpu", {"precision": "fp16"}, {"use_gpu": "true", "gpu_precision_loss_allowed": "true"}),
        ("litert-gpu", {"require_full_delegation": True}, {"require_full_delegation": "true"}),
        ("litert", {"resolver": "reference"}, "no reference kernels"),
        ("litert", {"version": "2.2.0"}, "that of the tool there"),
        ("litert", {"api": "compiled_model"}, "no such flag"),
        ("litert", {"threads": 5}, "the device has 4 CPUs"),
    ],
)
def test_options_of_a_cell_become_flags_or_are_refused(tiny, kind, options, said):
    spec = job(("0" * 64, 1), delegate=kind, delegate_options=options, device="board")
    attempt = AttemptFile(job=spec, device=DEVICE, model_path=str(tiny), references="")
    if isinstance(said, str):
        with pytest.raises(NoDeviceError, match=said):
            tool_call(attempt, 4)
    else:
        flags = tool_call(attempt, 4).flags
        assert said.items() <= flags.items()
        assert (flags["num_runs"], flags["min_secs"], flags["warmup_runs"]) == ("12", "0", "1")


def test_values_that_are_given_go_to_the_device_as_bytes(tiny, tmp_path):
    values = np.arange(2 * 8 * 8 * 16, dtype=np.float32).reshape(2, 1, 8, 8, 16)
    np.save(tmp_path / "values.npy", values)
    data = InputData(sha256="0" * 64, size_bytes=1)
    spec = job(("0" * 64, 1), device="board", inputs={"image": InputSpec(data=data)})
    paths = {"image": str(tmp_path / "values.npy")}
    attempt = AttemptFile(job=spec, device=DEVICE, model_path=str(tiny), references="", input_paths=paths)
    call = tool_call(attempt, 4)
    assert call.input_bytes == {"image": values[0].tobytes()}
    words = call.words("/tool", "/m.tflite", {"image": "/at:1"})
    assert words[:2] == ["/tool", "--graph=/m.tflite"]
    assert words[-1] == "--input_layer_value_files=image:/at::1"


def test_a_cancel_ends_the_arms_own_run_of_the_tool_and_nothing_else(tmp_path, tiny):
    class Line(Remote):
        ends = 0

        def hang_up(self):
            Line.ends += 1

        def put(self, file, target):
            arm.kill_if_cancelled()
            assert Line.ends == 0, "a copy is not cut off"

        def run_guarded(self, command, within_s=None):
            other.kill_if_cancelled()
            assert Line.ends == 0, "it is another arm's run"
            arm.kill_if_cancelled()
            return Answer(0, PRINTS)

    one = OverSsh(name="board", host="board", benchmark_model="/tool")
    line = Line(one)
    attempt = AttemptFile(
        job=job(("0" * 64, 1)), device=DEVICE, model_path=str(tiny), references="", attached=one
    )
    arm, other = (ToolArm(attempt, tmp_path / name, line, alone=False) for name in ("arm", "other"))
    for folder in (arm.folder, other.folder):
        folder.mkdir()
        mark_cancelled(folder)
    line.put(tiny, "/m")
    arm.do(lambda: None)
    assert arm.cancelled
    with pytest.raises(CancelledError):
        arm.run_block(1)
    assert Line.ends == 1
