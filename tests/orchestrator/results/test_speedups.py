"""Statements about a speed-up that the data allow."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from agent.wire.measurement import Latency, Quality, Ratio, baseline_id
from orchestrator.results.comparison import speed_up, unequal_threads
from orchestrator.results.device_noise import DeviceNoise
from orchestrator.results.export import result_json, results_csv
from orchestrator.results.format import EN_DASH, TIMES
from orchestrator.results.speedups import (
    Baselines,
    SpeedUp,
    mean_speedup,
    speedup,
)
from orchestrator.site.cell_view import cell_view
from tests.orchestrator.site import records
from tests.orchestrator.site.records import HOST, POCL


def _cell(delegate: str, p50: float | None, ci95: tuple[float, float] | None = None, **changes):
    raw = records.processes("any", 1.0, count=1, samples=12)
    made = records.measurement(raw, delegate, 3, changes.pop("verdict", "pass"))
    latency = Latency(
        init=1, init_warm=1, first=1, p50=p50, p90=None, p99=None, mean=p50, ci95=ci95,
        missing={} if p50 else {"p50": "too few"},
    )  # fmt: skip
    device = changes.pop("device", POCL if delegate == "gpu" else HOST)
    made = made.model_copy(update={"latency_ms": latency, "ratio": changes.pop("ratio", None)})
    return records.cell("c", "m", delegate, device, measurement=made, **changes)


BASE = _cell("litert", 2.0, (1.9, 2.1))


def _ratio(median: float, ci95: tuple[float, float] | None, blocks: int = 5, **changes) -> Ratio:
    values = {
        "against": f"litert@{HOST}",
        "baseline_id": baseline_id(BASE.delegate_kind, BASE.delegate_options),
        "device_id": HOST,
    }
    return Ratio(median=median, ci95=ci95, blocks=blocks, seed=7, **{**values, **changes})


@pytest.mark.parametrize(
    ("median", "ci95", "blocks", "verdict", "tone", "factor", "line"),
    [
        (2.0, (1.9, 2.1), 3, "faster", "faster-much", "2.0", "▲ 2.00x [1.90 - 2.10]"),
        (1.03, (1.02, 1.04), 5, "faster", "faster", "1.03", "▲ 1.03x [1.02 - 1.04]"),
        (0.9, (0.85, 0.95), 5, "slower", "slower", "1.11", "▼ 0.90x [0.85 - 0.95]"),
        (1.001, (0.97, 1.03), 5, "same", "similar", "1.00", "= 1.00x [0.97 - 1.03]"),
        (1.03, (1.0, 1.06), 5, "open", "unjudged", "1.03", "· 1.03x [1.00 - 1.06]"),
        (2.0, None, 2, "open", "unjudged", "2.0", "· 2.00x"),
    ],
    ids=["twice", "faster", "slower", "same", "open", "two blocks"],
)
def test_a_paired_ratio_has_the_verdict_of_its_interval_from_three_blocks_on(
    median, ci95, blocks, verdict, tone, factor, line
):
    # Its median is of no consequence: the ratio that was stored is the one that is shown.
    cell = _cell("gpu", 123.0, (120.0, 125.0), ratio=_ratio(median, ci95, blocks))
    assert speedup(cell, BASE).verdict == verdict
    found = cell_view(cell, BASE).speedup
    assert (found.tone, found.text, found.blocks) == (tone, f"{factor}{TIMES}", f"{blocks} blocks")
    assert found.against == f"litert@{HOST}"
    assert speed_up(cell, BASE) == line.replace("x", TIMES).replace("-", EN_DASH)


@pytest.mark.parametrize(("allowance", "verdict"), [(0.0, "faster"), (0.02, "faster"), (0.06, "open")])
def test_what_others_took_widens_the_interval(allowance, verdict):
    cell = _cell("gpu", 1.0, ratio=_ratio(1.08, (1.06, 1.1), allowance=allowance))
    found = speedup(cell, BASE)
    assert (found.verdict, found.allowance) == (verdict, allowance)
    assert found.half == pytest.approx(0.0185, abs=1e-4)


@pytest.mark.parametrize(
    ("ratio", "least", "most"),
    [
        (_ratio(1.03, (1.0, 1.06), 5, spread=0.02), 6, 12),
        (_ratio(1.03, (1.0, 1.06), 5), 6, 12),
        (_ratio(1.3, None, 2), 3, 3),
        (_ratio(1.03, (1.0, 1.06), 15, tunings=3, spread=0.02), 20, 60),
        (_ratio(1.03, (1.0, 1.06), 5, spread=0.02, allowance=0.1), None, None),
    ],
    ids=["spread", "of an older agent", "two blocks", "over tunings", "the allowance keeps it open"],
)
def test_an_open_ratio_says_how_many_blocks_would_decide_it(ratio, least, most):
    found = speedup(_cell("gpu", 1.0, ratio=ratio), BASE)
    assert found.verdict == "open"
    assert found.blocks_needed == most or least <= found.blocks_needed <= most
    assert speedup(_cell("gpu", 1.0, ratio=_ratio(2.0, (1.9, 2.1))), BASE).blocks_needed is None


@pytest.mark.parametrize("void", ["contender", "baseline"])
@pytest.mark.parametrize("why", ["void", "imported"])
def test_a_void_result_has_no_verdict_in_any_form(void, why):
    for ratio in (_ratio(2.0, (1.9, 2.1)), None):
        both = {"contender": _cell("gpu", 1.0, ratio=ratio), "baseline": BASE}
        if why == "void":
            quality = Quality(void=("swapped while timing",))
            made = both[void].measurement.model_copy(update={"quality": quality})
            both[void] = replace(both[void], measurement=made)
        else:
            both[void] = replace(both[void], facts={"imported_tool": "x", "imported_sha256": "ab"})
        found = speedup(both["contender"], both["baseline"])
        assert (found.verdict, found.paired) == ("void", ratio is not None)
        assert cell_view(both["contender"], both["baseline"]).speedup is None
        assert mean_speedup([found]) is None


@pytest.mark.parametrize(
    ("floor", "verdict"), [(None, "faster"), (0.01, "faster"), (0.03, "open"), (0.06, "same")]
)
def test_what_equal_things_differ_by_on_a_device_is_no_difference(floor, verdict):
    noise = None if floor is None else DeviceNoise(floor, 0.05, 5, "cpu", "2026-03-01T12:00:00+00:00")
    cell = replace(_cell("gpu", 1.0, ratio=_ratio(1.06, (1.04, 1.08))), noise=noise)
    assert speedup(cell, BASE).verdict == verdict
    assert speedup(replace(cell, noise=None), replace(BASE, noise=noise)).verdict == verdict


def test_any_other_ratio_is_called_unpaired_and_carries_no_verdict():
    for cell in (
        _cell("gpu", 1.0, (0.9, 1.1)),
        _cell("gpu", 1.0, (0.9, 1.1), ratio=_ratio(5.0, (4.0, 6.0), baseline_id="anotherone00")),
    ):
        found = speedup(cell, BASE)
        assert (found.ratio, found.verdict, found.paired) == (2.0, "unpaired", False)
        shown = cell_view(cell, BASE).speedup
        assert (shown.word, shown.sign, shown.tone, shown.interval) == ("unpaired", "≈", "unjudged", "")
        assert speed_up(cell, BASE) == f"2.00{TIMES} unpaired"


def test_the_stored_ratio_is_in_every_form_of_the_data():
    cell = _cell("gpu", 1.0, (0.9, 1.1), ratio=_ratio(1.5, (1.4, 1.6), 6))
    assert result_json(cell)["ratio"] == {
        "against": f"litert@{HOST}", "median": 1.5, "ci95": [1.4, 1.6], "blocks": 6, "seed": 7,
        "tunings": 1, "allowance": 0.0, "spread": None, "verdict": "faster", "blocks_needed": None,
    }  # fmt: skip
    (row,) = csv.DictReader(io.StringIO(results_csv([cell])))
    assert [row[f"ratio.{name}"] for name in ("median", "ci95.low", "ci95.high", "blocks")] == [
        "1.5", "1.4", "1.6", "6",
    ]  # fmt: skip
    assert result_json(BASE)["ratio"] is None
    wrong = _cell("gpu", 1.0, verdict="fail", ratio=_ratio(1.5, (1.4, 1.6)))
    assert result_json(wrong)["ratio"] is None, "a wrong output has no speed-up"
    assert speedup(wrong, BASE) is None


def test_unequal_thread_counts_stand_in_the_heading():
    told = _ratio(1.5, None, 2, against=f"litert@{HOST} (threads: 4 against 1 here)")
    assert unequal_threads([_cell("gpu", 1.0, ratio=told), BASE]) == " (threads: 4 against 1 here)"
    assert unequal_threads([_cell("gpu", 1.0, ratio=_ratio(1.5, None, 2)), BASE]) == ""


def test_the_mean_is_over_paired_ratios_alone_or_says_that_it_is_unpaired():
    paired = [SpeedUp(2.0, "faster", "b", blocks=5), SpeedUp(8.0, "open", "b", blocks=3)]
    unpaired = SpeedUp(100.0, "unpaired", "b")
    found = mean_speedup([*paired, unpaired])
    assert (found.ratio, found.count, found.paired) == (pytest.approx(4.0), 2, True)
    alone = mean_speedup([unpaired])
    assert (alone.ratio, alone.count, alone.paired) == (pytest.approx(100.0), 1, False)
    assert mean_speedup([]) is None


@pytest.mark.parametrize(
    "cell",
    [
        _cell("gpu", 1.0, verdict="fail"),
        _cell("gpu", 1.0, status="failed"),
        _cell("gpu", None),
        records.cell("c", "m", "gpu", POCL, "failed"),
    ],
    ids=["wrong output", "failed", "too few samples", "nothing measured"],
)
def test_no_speedup_without_a_counted_number(cell):
    assert speedup(cell, BASE) is None
    assert speedup(BASE, cell) is None


def test_the_baseline_is_the_hosts():
    here = _cell("litert", 2.0, device=POCL)
    both = Baselines.among("litert", [BASE, here])
    assert both.of(_cell("gpu", 1.0)) is here
    assert both.of(_cell("gpu", 1.0, ratio=_ratio(1.5, None, 2))) is BASE, "the one it was measured with"
    assert both.of(_cell("gpu", 1.0, device="bench-01/opencl-7")) is None, "two candidates, neither is right"
    assert Baselines.among("litert", [BASE]).of(_cell("gpu", 1.0)) is BASE
    assert Baselines.among(None, [BASE]).of(_cell("gpu", 1.0)) is None
    assert speedup(BASE, BASE) is None
    racks = [_cell("litert", 2.0, device=f"{name}.host-cpu") for name in ("rack-1", "rack-2")]
    lab = Baselines.among("litert", racks)
    assert lab.of(_cell("gpu", 1.0, device="rack-2.gpu-0")) is racks[1]
    assert lab.of(_cell("gpu", 1.0, device="rack-3.gpu-0")) is None, "no baseline of another host"
