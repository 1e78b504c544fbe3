"""The matrix: order, gaps, bars."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.site.campaign_page import campaign_head
from orchestrator.site.matrix import BAR_WIDTH, build_matrix
from tests.orchestrator.site.records import HOST, POCL, cell, demo_farm
from tests.orchestrator.site.wide import wide_farm

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
    listed = [link.href for one in matrix.without_number for link in one.cells]
    expected = [
        f"cells/{c.cell_id}.html"
        for c in FARM.cells(OLDER.campaign_id)
        if c.measurement is None or c.struck_out or c.measurement.latency_ms.p50 is None
    ]
    assert sorted(listed) == sorted(expected), "each once"
    assert all(one.reason or one.status.word == "queued" for one in matrix.without_number)


def test_a_reason_stands_in_a_column_once_and_in_the_list_once():
    farm = wide_farm()
    (campaign,) = farm.campaign_list
    matrix = build_matrix(campaign, farm.cells(campaign.campaign_id))
    openvino = [row.cells[-1] for row in matrix.rows]
    assert [view.repeats for view in openvino] == [False, True, True, True, True]
    assert {view.status.reason for view in openvino} == {
        "openvino is not installed: install the extra 'openvino'"
    }
    cpu = [row.cells[1].repeats for row in matrix.rows if row.cells[1].status.reason]
    assert cpu == [False, True], "another column says its own reason"
    reasons = [(one.status.word, one.reason) for one in matrix.without_number]
    assert len(reasons) == len(set(reasons))


def test_a_struck_out_cell_is_counted_once():
    farm = wide_farm()
    (campaign,) = farm.campaign_list
    cells = farm.cells(campaign.campaign_id)
    counts = campaign_head(campaign, cells)["counts"]
    assert counts == "21 done · 1 struck out · 1 failed · 7 unsupported"
    assert sum(int(part.split()[0]) for part in counts.split(" · ")) == len(cells)


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
