"""A campaign is read for a comparison with no more than it takes, and says the same as its records."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime

from agent.wire.labelled import LabelledScore
from agent.wire.measurement import Quality, Ratio, Variation
from agent.wire.messages import ReasonCode, Status
from orchestrator.db import tables
from orchestrator.db.campaigns import imports, steering_requests
from orchestrator.db.engine.sessions import Database
from orchestrator.db.results import compared_cells, records
from orchestrator.db.scheduling import ingest
from orchestrator.results.device_noise import DeviceNoise
from orchestrator.results.records import (
    IMPORTED_SHA256,
    IMPORTED_TOOL,
    CellGroup,
    CellRecord,
    ComparedCell,
    compared_figures,
)
from orchestrator.results.regression import by_names, compare_runs
from tests.orchestrator.asked import asked
from tests.orchestrator.stocked import cells, dispatch, measured, result, stock


def lightly(record: CellRecord) -> ComparedCell:
    """Return the same cell, from its whole record."""
    found = {field.name: getattr(record, field.name) for field in fields(ComparedCell)}
    if record.imported is None:
        found["facts"] = {}
    if record.measurement is not None:
        found["measurement"] = compared_figures(record.measurement.model_dump_json())
    return ComparedCell(**found)


def fill(database: Database) -> None:
    """Add a result with all compared fields, a wrong one, one that is unsupported, and a cell that waits."""
    stock(database, asked(("a", "b"), {"cpu": {"threads": 2}, "gpu": {}}))
    full = {
        "quality": Quality(void=("swap",), facts=("drift",), allowance=0.1, seen=("steal time",)),
        "ratio": Ratio(
            against="litert", baseline_id="1" * 12, device_id="host-cpu", median=2.0, ci95=(1.9, 2.1),
            blocks=5, seed=1,
        ),
        "variation": Variation(
            level="tuning", given_tuning=False, tunings=3, processes=5, sample_sd=None, process_sd=None,
            tuning_sd=None, sample_s=0.1, process_s=None, tuning_s=None, samples_advised=None,
            processes_advised=None, units_advised=None,
        ),
        "labelled": LabelledScore(metric="top1", samples=10, right=9, share=0.9, verdict="pass"),
        "settings": {"processes": "5", "precision": "fp32"},
    }  # fmt: skip
    done, wrong, unsupported, _ = cells(database)
    for row, status, measurement in (
        (done, Status.DONE, measured().model_copy(update=full)),
        (wrong, Status.DONE, measured(verdict="fail")),
        (unsupported, Status.UNSUPPORTED, None),
    ):
        message = result(
            dispatch(database, row.cell_id), status, environment={"cpu": "epyc", "driver": "3.2"}
        )
        message = message.model_copy(update={"measurement": measurement})
        with database.write() as turn:
            assert ingest.apply(turn, message, datetime.now(UTC)) == "counted"
    with database.write() as turn:
        noise = DeviceNoise(0.04, 0.05, 5, "cpu", "2026-03-01T12:00:00+00:00")
        steering_requests.record_noise(turn, done.target, noise)
        facts = {IMPORTED_TOOL: "benchmark_model", IMPORTED_SHA256: "5" * 64}
        foreign = imports.ImportedCell("a", "b", "benchmark_model", "phone", measured(), facts)
        imports.add(turn, "imported", "content", [foreign], "me", datetime.now(UTC))


def test_what_is_compared_is_what_the_records_say(database: Database) -> None:
    fill(database)
    with database.read() as session:
        numbers = [row.no or 0 for row in session.exec(tables.Campaign.__table__.select())]
        whole = [records.cells_of(session, number) for number in numbers]
        light = [compared_cells.compared_cells(session, number) for number in numbers]
    assert [len(found) for found in light] == [4, 1]
    assert light == [[lightly(record) for record in found] for found in whole]
    for found, same in zip(light, whole, strict=True):
        assert [c.struck_out for c in found] == [c.struck_out for c in same]
        told, expected = (compare_runs(by_names(side), by_names(side)) for side in (found, same))
        assert [(c.verdict, c.estimate, c.why) for c in told.changes] == [
            (c.verdict, c.estimate, c.why) for c in expected.changes
        ]
    assert light[0][0].noise == whole[0][0].noise is not None
    assert [cell.imported is None for cell in (light[0][0], light[1][0])] == [True, False]


def test_a_group_is_another_one_as_soon_as_a_cell_of_it_changes(any_database: Database) -> None:
    def groups() -> dict[tuple[str, str], CellGroup]:
        with any_database.read() as session:
            found = compared_cells.cell_groups(session)
            names = {row.campaign_id: row.name for row in session.exec(tables.Campaign.__table__.select())}
        return {(names[one.campaign_id], one.model): one for one in found}

    def changed(before: dict[tuple[str, str], CellGroup]) -> set[tuple[str, str]]:
        now = groups()
        return {key for key, one in now.items() if key not in before or before[key].content != one.content}

    fill(any_database)
    first = groups()
    counts = {key: one.count for key, one in first.items()}
    assert counts == {("test", "a"): 2, ("test", "b"): 2, ("imported", "a"): 1}
    assert first["test", "a"].columns == (("cpu", "host-cpu", "quick"), ("gpu", "pocl-0", "quick"))
    assert changed(first) == set(), "the same digests again"
    with any_database.read() as session:
        numbers = {row.name: row.no for row in session.exec(tables.Campaign.__table__.select())}
        for (name, model), group in first.items():
            own = compared_cells.compared_cells(session, numbers[name], model)
            assert [cell.model for cell in own] == [model] * group.count
    waiting = next(row for row in cells(any_database) if row.state == "queued")
    attempt = dispatch(any_database, waiting.cell_id)
    assert changed(first) == {("test", "b")}, "it runs"
    running = groups()
    with any_database.write() as turn:
        failed = result(attempt, Status.FAILED, ReasonCode.INTERRUPTED)
        assert ingest.apply(turn, failed, datetime.now(UTC)) == "superseded"
    assert changed(first) == {("test", "b")}, "it waits again, and its page lists the attempt"
    attempt = dispatch(any_database, waiting.cell_id)
    with any_database.write() as turn:
        assert ingest.apply(turn, result(attempt), datetime.now(UTC)) == "counted"
    assert changed(running) == {("test", "b")}, "it has a result"
    stock(any_database, asked(("a",), {"cpu": {"threads": 2}}, name="later"))
    queued = groups()
    shown, new = cells(any_database)[0], next(row for row in cells(any_database) if row.state == "queued")
    with any_database.write() as turn:
        cell = turn.cell(new.cell_id)
        cell.reused_from, cell.shown_attempt_id = shown.cell_id, shown.shown_attempt_id
    assert changed(queued) == {("later", "a")}
    later = groups()["later", "a"]
    campaign_id = first["test", "a"].campaign_id
    assert later.origins == ((campaign_id, "a"),), "its cell shows the result of the first campaign"
    done = groups()
    with any_database.write() as turn:
        noise = DeviceNoise(0.09, 0.1, 5, "cpu", "2026-04-01T12:00:00+00:00")
        steering_requests.record_noise(turn, "host-cpu", noise)
    assert changed(done) == {("test", "a"), ("test", "b"), ("later", "a")}, "what ran on that device"
