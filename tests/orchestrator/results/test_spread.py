"""`farm show` on an interval: its level, the variation, and what to repeat more often."""

from __future__ import annotations

from collections.abc import Sequence

from agent.wire.measurement import Accuracy, BlockFigure, Latency, Measurement, Tuning, Variation
from orchestrator.results.detail_lines import spread_lines

VARIED = Variation(
    level="tuning", given_tuning=False, tunings=3, processes=10, sample_sd=0.042, process_sd=0.009,
    tuning_sd=0.0155, sample_s=0.005, process_s=1.9, tuning_s=3.4, samples_advised=89, processes_advised=1,
    units_advised=12, rounds_advised=9,
)  # fmt: skip
NOTHING = dict.fromkeys(("init", "init_warm", "first", "p50", "p90", "p99", "mean", "ci95"))


def said(blocks: Sequence[BlockFigure] = (), **changes: object) -> dict[str, str]:
    tunings = (
        Tuning(sha256="ab" * 32, choices="0c41d29e5a7b=rows", processes=4),
        Tuning(sha256="cd" * 32, choices=None, processes=1),
    )
    measurement = Measurement(
        latency_ms=Latency.model_validate(NOTHING),
        samples=1,
        memory_peak_bytes=0,
        accuracy=Accuracy(reference=None, max_abs=None, rel_l2=None, cosine=None, verdict=None),
        delegation=None,
        settings={},
        blocks=tuple(blocks),
        variation=VARIED.model_copy(update=changes),
        tunings=tunings,
    )
    lines = list(spread_lines(measurement))
    assert not list(spread_lines(measurement.model_copy(update={"variation": None})))
    return {name or f"below {lines[i - 1][0]}": text for i, (name, text) in enumerate(lines)}


def test_the_level_of_the_interval_and_the_advice_are_said():
    lines = said()
    assert lines["interval over"] == "3 tunings"
    assert lines["varies by"].startswith("samples 4.20%, processes 0.90%, tunings 1.55%")
    wanted = "9 rounds of a block, 1 block of a tuning, 12 tunings for an interval of 1 % to either side"
    assert lines["advice"] == wanted
    assert lines["tuning 1"] == "4 processes, sha256 abababababab"
    assert lines["below tuning 1"] == "choices: 0c41d29e5a7b=rows"
    assert lines["below tuning 2"] == "choices: too long to be an option"


def test_an_interval_over_processes_of_one_tuning_says_so():
    nothing = {"tuning_sd": None, "processes_advised": None, "rounds_advised": None, "process_sd": 0.0}
    lines = said(level="process", tunings=1, given_tuning=True, **nothing)
    assert lines["interval over"] == "10 processes, given this tuning"
    assert lines["advice"].startswith("more rounds rather than blocks, 12 blocks for")
    assert said(level="process", tunings=1)["interval over"] == "10 processes"


def test_an_interval_is_over_the_earlier_blocks_too():
    for tunings, units in ((1, "12 processes, given this tuning"), (6, "6 tunings")):
        blocks = [BlockFigure(p50_ns=1e6, rounds=7, tuning=k % tunings) for k in range(12)]
        assert said(blocks, level="process", tunings=1, given_tuning=True)["interval over"] == units
