"""More blocks would make some results clearer, the vaguest first."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from agent.wire.bounded import MAX_BLOCKS
from agent.wire.measurement import BlockFigure, Quality, Ratio, baseline_id
from agent.wire.plan import MeasurePlan
from orchestrator.results.grading import Beyond, Vague, seen_once, vague_cells
from orchestrator.results.records import AttemptRecord, CellRecord
from tests.orchestrator.cli.records import cell


def of(
    model: str,
    half: float | None,
    *,
    ratio: float | None = None,
    allowance: float = 0.0,
    blocks: int = 4,
    void: tuple[str, ...] = (),
    spread: float | None = None,
) -> CellRecord:
    """Build a cell whose ratio, else whose p50, is known to `half`."""
    around = None if half is None else (math.exp(-half), math.exp(half))
    one = cell(model, "cpu" if ratio is None else "gpu", p50=1.0, ci95=around)
    assert one.measurement is not None
    measured = one.measurement.model_copy(
        update={
            "quality": Quality(void=void, allowance=allowance),
            "blocks": tuple(BlockFigure(p50_ns=1e6, rounds=7) for _ in range(blocks)),
        }
    )
    if ratio is not None:
        found = Ratio(
            against="cpu@host-cpu", baseline_id=baseline_id("cpu", {}), device_id="host-cpu", median=ratio,
            ci95=None if around is None else (ratio * around[0], ratio * around[1]), blocks=blocks or 4,
            seed=1, allowance=allowance, spread=spread,
        )  # fmt: skip
        measured = measured.model_copy(update={"ratio": found})
    return replace(one, measurement=measured, plan=MeasurePlan(target=0.05))


def names(cells: list[CellRecord], baseline: str | None = None, target: float | None = None) -> list[str]:
    return [one.cell.model for one in vague_cells(cells, baseline, target)[0]]


def beyond(one: CellRecord, target: float | None = None) -> str:
    vague, (left,) = vague_cells([one], "cpu" if one.delegate == "gpu" else None, target)
    assert not vague
    assert isinstance(left, Beyond)
    return left.why


def test_open_ratios_are_vague_and_the_least_known_come_first() -> None:
    cells = [
        of("decided", 0.1, ratio=2.0),
        of("same", 0.01, ratio=1.0),
        of("open", 0.08, ratio=1.02),
        of("vaguer", 0.3, ratio=1.1),
        of("unknown", None, ratio=1.3),
        of("slower", 0.1, ratio=0.5),
    ]
    assert names(cells, "cpu") == ["unknown", "vaguer", "open"]


@pytest.mark.parametrize(
    ("half", "ratio", "attempts", "again"),
    [
        (0.02, 0.94, ("done",), True),
        (0.02, 1.30, ("failed", "done"), True),
        (0.01, 1.00, ("done",), True),
        (0.20, 1.70, ("done",), True),
        (0.20, 1 / 1.7, ("done",), True),
        (0.02, 0.94, ("done", "done"), False),
        (0.02, 1.60, ("done",), False),
        (0.02, 0.50, ("done",), False),
        (0.08, 1.02, ("done",), False),
        (None, 1.30, ("done",), False),
        (0.02, None, ("done",), False),
    ],
)
def test_a_verdict_of_one_attempt_is_not_final_where_a_slow_state_could_explain_it(
    half: float | None, ratio: float | None, attempts: tuple[str, ...], again: bool
) -> None:
    tries = tuple(AttemptRecord("a", 1, "host-cpu", state, None, None, None) for state in attempts)
    one = replace(of("net", half, ratio=ratio), attempts=tries)
    assert bool(seen_once([one], "cpu")) is again


def test_a_target_makes_every_coarse_figure_vague() -> None:
    cells = [of("wide", 0.1, ratio=2.0), of("narrow", 0.02, ratio=2.0), of("open", 0.02, ratio=1.03)]
    assert names(cells, "cpu", 0.03) == ["wide", "open"]


def test_without_a_baseline_a_median_is_to_be_known_to_the_target_of_its_plan() -> None:
    cells = [of("wide", 0.08), of("narrow", 0.04), of("none", None)]
    assert names(cells) == ["none", "wide"]
    assert names(cells, None, 0.03) == ["none", "wide", "narrow"]


def test_the_baseline_itself_is_measured_with_the_others_and_is_never_vague() -> None:
    assert names([of("net", 0.5), of("net", 0.01, ratio=2.0)], "cpu", 0.03) == []


def test_what_has_no_counted_figure_is_neither() -> None:
    failed = replace(of("net", 0.5), status="failed", measurement=None)
    assert vague_cells([failed], None) == ((), ())


def test_cells_that_are_asked_for_are_vague_whatever_they_say() -> None:
    cells = [of("base", 0.01), of("sure", 0.01, ratio=2.0), of("open", 0.3, ratio=1.1)]
    found, _ = vague_cells(cells, "cpu", 0.03, {cells[0].cell_id, cells[1].cell_id})
    assert {(one.cell.model, one.blocks_needed) for one in found} == {("base", 8), ("sure", 8)}


@pytest.mark.parametrize(
    ("one", "target", "why"),
    [
        (of("net", 0.3, ratio=1.02, blocks=0), None, "kept no blocks"),
        (of("net", 0.06, ratio=1.02, blocks=MAX_BLOCKS), None, f"has {MAX_BLOCKS} blocks, the most"),
        (of("net", 0.02, ratio=1.0, allowance=0.1), None, "others took 9.5% of the time"),
        (of("net", 0.02, allowance=0.06), None, "others took 5.8% of the time"),
        (of("net", 0.3, void=("swap",)), None, "void: swap"),
        (of("net", 0.3, ratio=1.02, void=("swap",)), 0.03, "void: swap"),
    ],
)
def test_what_no_block_helps_says_why(one: CellRecord, target: float | None, why: str) -> None:
    assert why in beyond(one, target)


def test_the_time_follows_from_what_its_blocks_took() -> None:
    attempt = AttemptRecord("a", 1, "host-cpu", "done", None, None, None, duration_ns=40_000_000_000)
    one = replace(of("net", 0.0999, blocks=4), attempts=(attempt,))
    ((found,), _) = vague_cells([one], None, None)
    assert isinstance(found, Vague)
    assert (found.blocks_needed, found.seconds) == (16, pytest.approx(120.0))
    assert replace(found, cell=replace(one, attempts=())).seconds is None


def test_a_block_took_what_those_of_the_last_attempt_took() -> None:
    """Of 16 blocks, the last attempt measured 12: earlier ones were there before it."""
    attempts = tuple(
        AttemptRecord("a", n, "host-cpu", state, None, None, None, duration_ns=seconds * 10**9)
        for n, (state, seconds) in enumerate((("done", 40), ("done", 120), ("failed", 1)))
    )
    one = replace(of("net", 0.0999, blocks=16), attempts=attempts)
    assert one.measurement is not None
    own = one.measurement.model_copy(update={"settings": {"processes": "12"}})
    ((found,), _) = vague_cells([replace(one, measurement=own)], None, None)
    assert isinstance(found, Vague)
    assert (found.blocks_needed, found.seconds) == (40, pytest.approx(240.0))
