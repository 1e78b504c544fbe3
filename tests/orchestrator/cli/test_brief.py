"""The ten lines that `farm show` begins with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.wire.measurement import Delegation, Fallback
from orchestrator.cli.show import brief
from tests.orchestrator.results.answered import failed, measured, wrong

TEN = (
    "model", "delegate", "verdict", "p50", "grade", "accuracy", "delegation", "start", "memory", "measured",
)  # fmt: skip
ONE = measured("resnet18", ratio=1.82, half=0.06, start=(4000.0, 90.0))
PARTLY = Delegation(
    status="partial",
    delegated_ops=8,
    total_ops=9,
    partitions=2,
    fallbacks=(Fallback(index=7, op="CUMSUM", reason="no such kernel"),),
)


def test_a_measured_cell_has_ten_lines_that_say_it_all():
    said = dict(brief(ONE))
    assert tuple(said) == TEN
    assert said["model"] == f"resnet18  (cell {ONE.cell_id}, quick, demo)"
    assert said["delegate"] == "gpu  on AMD EPYC (OpenCL on CPU) (opencl-0)"
    assert said["verdict"].startswith("▲ 1.82x faster than litert@host-cpu, 95 % interval 1.78 ")
    assert said["grade"] == "good: known to 2 % (h 2 % + b 0 %); the p50 alone fair ±6 %"
    assert said["start"] == "4.0 s cold, 90 ms warm, 3.0 ms the first invoke"
    assert said["measured"] == (
        "4 blocks, by turns; 2 of 28 rounds repeated; 90 samples; stopped: every verdict is decided"
    )


@pytest.mark.parametrize(
    ("cell", "name", "said"),
    [
        (measured(ratio=0.0625), "verdict", "▼ 16.0x slower than litert@host-cpu"),
        (measured(ratio=1.03, ratio_half=0.07), "verdict", "blocks would decide it"),
        (measured(ratio=1.0, ratio_half=0.01), "verdict", "= 1.00x the same as litert@host-cpu"),
        (measured(delegate="litert"), "verdict", "done; no ratio: it is the baseline"),
        (measured(ratio=3.0, void=("swapped",)), "verdict", "void: swapped"),
        (wrong("net", "gpu"), "verdict", "wrong output: rel_l2 0.5 > 0.0001"),
        (failed("net", "gpu"), "verdict", "unsupported: operator 3 RFFT2D has no kernel"),
        (measured(half=None), "grade", "noisy: no interval"),
        (measured(verdict=None), "accuracy", "not judged"),
        (measured(delegation=PARTLY), "delegation", "on the CPU CUMSUM (7): no such kernel"),
    ],
)
def test_each_line_says_its_part(cell, name, said):
    assert said in dict(brief(cell))[name]


def test_a_void_or_wrong_cell_shows_no_time():
    for cell in (measured(ratio=3.0, void=("swapped",)), wrong("net", "gpu"), failed("net", "gpu")):
        assert not {"p50", "grade"} & set(dict(brief(cell)))
    assert "start" not in dict(brief(wrong("net", "gpu")))


def test_the_options_of_a_delegate_are_told():
    cell = replace(ONE, delegate_options={"precision": "fp16"})
    assert dict(brief(cell))["delegate"].startswith("gpu, precision=fp16  on ")
