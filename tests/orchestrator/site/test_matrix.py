"""The matrix: order, gaps, bars."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.site.matrix import BAR_WIDTH, build_matrix
from tests.orchestrator.site.records import HOST, POCL, cell, demo_farm

FARM = demo_farm()
OLDER, NEWEST = FARM.campaign_list


def test_baseline_comes_first_and_no_device_last():
    newest = build_matrix(NEWEST, FARM.cells(NEWEST.campaign_id))
    assert [(c.delegate, c.is_baseline) for c in newest.columns] == [
        ("litert", True),
        ("cpu", False),
        ("gpu", False),
    ]
    older = build_matrix(OLDER, FARM.cells(OLDER.campaign_id))
    assert [(c.delegate, c.device) for c in older.columns] == [
        ("litert", HOST), ("gpu", POCL), ("cpu", HOST), ("gpu", "no device"),
    ]  # fmt: skip


def test_every_cell_stands_in_its_row_and_column():
    cells = FARM.cells(OLDER.campaign_id)
    matrix = build_matrix(OLDER, cells)
    placed = [view for row in matrix.rows for view in row.cells if view is not None]
    assert len(placed) == len(cells)
    assert {v.href for v in placed} == {f"cells/{c.cell_id}.html" for c in cells}
    for row in matrix.rows:
        assert len(row.cells) == len(matrix.columns)
        for view, column in zip(row.cells, matrix.columns, strict=True):
            assert view is None or (view.delegate, view.device) == (column.delegate, column.device)


def test_cells_without_a_counted_number_are_listed_with_a_reason_or_state():
    matrix = build_matrix(OLDER, FARM.cells(OLDER.campaign_id))
    listed = {view.href for view in matrix.without_number}
    expected = {
        f"cells/{c.cell_id}.html"
        for c in FARM.cells(OLDER.campaign_id)
        if c.measurement is None or c.struck_out or c.measurement.latency_ms.p50 is None
    }
    assert listed == expected
    assert all(view.status.reason or view.status.word == "queued" for view in matrix.without_number)


def test_bars_of_a_row_share_a_scale():
    matrix = build_matrix(NEWEST, FARM.cells(NEWEST.campaign_id))
    for row in matrix.rows:
        bars = {v.delegate: v.bar for v in row.cells if v is not None and v.bar is not None}
        assert {bar.baseline for bar in bars.values()} == {bars["litert"].p50}
        assert float(bars["litert"].p50) < float(bars["cpu"].p50), "slower lies further right"
        for bar in bars.values():
            assert 0 < float(bar.low) <= float(bar.p50) <= float(bar.high) < BAR_WIDTH


def test_models_of_another_level_get_their_own_row():
    mine = cell("c", "m", "cpu", HOST)
    other = replace(mine, cell_id="f" * 12, level="publish")
    matrix = build_matrix(replace(NEWEST, baseline=None), [mine, other])
    assert [row.detail.endswith("level publish") for row in matrix.rows] == [False, True]
    assert matrix.baseline == ""
