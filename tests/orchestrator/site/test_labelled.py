"""Labelled data on a page and in a table."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from agent.wire.labelled import ChangedAnswer, LabelledDrop, LabelledScore
from agent.wire.plan import LabelledData, MeasurePlan
from orchestrator.results.export import result_json, results_csv
from orchestrator.site.cell_view import cell_view
from orchestrator.site.variants import front_plot, variant_rows
from tests.orchestrator.site import records
from tests.orchestrator.site.records import HOST

FEW = LabelledScore(metric="top1", samples=100, right=61, share=0.61, at_least=0.7, verdict="fail")
SOME = FEW.model_copy(update={"at_least": None, "verdict": None})
MANY = FEW.model_copy(update={"right": 72, "share": 0.72, "verdict": "pass"})
DOUBTFUL = MANY.model_copy(update={"ci95": (0.625, 0.799), "verdict": "inconclusive"})


def cell(score, status="done"):
    raw = records.processes("any", 1.0, count=3, samples=12)
    made = records.measurement(raw, "cpu", 3).model_copy(update={"labelled": score})
    return records.cell("c", "m", "cpu", HOST, status, measurement=made)


@pytest.mark.parametrize(
    ("score", "tone", "said"),
    [
        (MANY, "quiet", "top1 0.72 (72 of 100 right), at least 0.7: pass"),
        (SOME, "quiet", "top1 0.61 (61 of 100 right)"),
        (DOUBTFUL, "quiet", "top1 0.72 [0.625 to 0.799] (72 of 100 right), at least 0.7: inconclusive"),
        (FEW, "bad", "top1 0.61 (61 of 100 right), at least 0.7: fail"),
    ],
)
def test_the_badge_says_how_many_were_right_and_too_few_are_bad(score, tone, said):
    badge = cell_view(cell(score), None).accuracy
    assert badge is not None
    assert (badge.tone, dict(badge.details)["labelled data"]) == (tone, said)


def test_without_labelled_data_nothing_is_said_of_it():
    badge = cell_view(cell(None), None).accuracy
    assert badge is not None
    assert "labelled data" not in dict(badge.details)


def test_the_latency_of_too_few_right_answers_is_struck_out():
    assert cell_view(cell(FEW, "failed"), None).struck_out
    assert result_json(cell(FEW, "failed"))["latency_ms"]["p50"] is None
    assert not cell_view(cell(SOME), None).struck_out
    assert not cell_view(cell(DOUBTFUL), None).struck_out


def test_an_export_has_the_interval():
    assert result_json(cell(DOUBTFUL))["labelled"]["ci95"] == [0.625, 0.799]
    assert result_json(cell(MANY))["labelled"]["ci95"] is None


def test_csv_has_a_column_for_each_of_its_figures():
    (row,) = csv.DictReader(io.StringIO(results_csv([cell(MANY)])))
    assert row["labelled.metric"] == "top1"
    assert (row["labelled.right"], row["labelled.share"], row["labelled.verdict"]) == ("72", "0.72", "pass")


def variant(model, delegate, share, size, data="5" * 64, **drop):
    found = LabelledDrop(
        baseline="litert@cpu", value=-0.1, ci95=(-0.3, 0.1), gained=0, lost=1, changed=1, **drop
    )
    score = SOME.model_copy(update={"share": share, "drop": found if drop else None})
    made = cell(score)
    plan = MeasurePlan(labelled=LabelledData(sha256=data, size_bytes=1))
    return replace(made, model=model, delegate=delegate, model_bytes=size, plan=plan)


def test_variants_of_a_network_are_set_beside_each_other_with_their_front():
    changes = (ChangedAnswer(file="7.png", before="class 1 (right)", after="class 2 (wrong)"),)
    best, small = variant("net", "cpu", 0.9, 4000), variant("net_int8", "cpu", 0.8, 1000, changes=changes)
    worse, other = variant("net", "gpu", 0.7, 4000), variant("apart", "cpu", 0.99, 10, data="6" * 64)
    rows = variant_rows([best, worse], [best, small, worse, other])
    assert [(row.model, row.column.split(" ")[0], row.is_on_front) for row in rows] == [
        ("net", "cpu", True), ("net_int8", "cpu", True), ("net", "gpu", False)
    ]  # fmt: skip
    assert rows[1].score.startswith("top1 0.8 (61 of 100 right), -0.1 [-0.3 to 0.1] against litert@cpu")
    assert rows[1].changes == [("7.png", "class 1 (right)", "class 2 (wrong)")]
    drawn = front_plot(rows)
    assert [dot.is_on_front for dot in drawn.dots] == [True, True, False]
    heights = [float(dot.y) for dot in drawn.dots]
    assert heights == sorted(heights), "the more accurate, the higher"
    assert {dot.x for dot in drawn.dots} == {drawn.dots[0].x}, "all took the same time"
    assert front_plot(rows[:1]) is None
    assert variant_rows([cell(SOME)], [best]) == ()
