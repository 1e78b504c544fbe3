"""The comparison table: what a person reads after a campaign."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from agent.wire.measurement import Delegation
from agent.wire.messages import ReasonCode
from orchestrator.cli.changes import markdown as changes_markdown
from orchestrator.cli.outcome import comparison_markdown, comparison_table
from orchestrator.cli.output import markdown_table
from orchestrator.cli.progress import line_of
from orchestrator.cli.results import newest
from orchestrator.results.comparison import all_well, cell_lines, compare, latency, reason_text, summary
from orchestrator.results.events import FarmEvent
from orchestrator.results.regression import by_names, compare_runs
from orchestrator.results.wording import LONGEST_REASON
from tests.orchestrator.cli.records import cell, ended, partly

TIMES = "\N{MULTIPLICATION SIGN}"
FAIR, NOISY = "fair: known to 5 % (h 5 % + b 0 %)", "noisy: known to 11 % (h 11 % + b 0 %)"
FULL = Delegation(status="full", delegated_ops=70, total_ops=70, partitions=1)


def test_models_are_rows_and_delegates_on_devices_columns() -> None:
    shown = compare(
        [
            cell("a", "litert"),
            cell("a", "gpu", p50=1.0, ci95=(0.9, 1.1), delegation=FULL, device="gpu-0"),
            cell("b", "litert", p50=400.0, ci95=None),
            partly("b"),
        ],
        "litert",
    )
    assert (shown.models, shown.columns) == (("a", "b"), ("litert@host-cpu", "gpu@gpu-0"))
    assert shown.cells[0] == (
        ("2.00 ±0.10 ms", "pass", FAIR),
        (f"1.00 ±0.10 ms 2.00{TIMES} unpaired", "70/70 ops, pass", NOISY),
    )
    assert shown.cells[1] == (
        ("400 ms", "pass", "noisy: no interval"),
        (f"1.00 ±0.10 ms 400{TIMES} unpaired", "69/70 ops, pass", NOISY),
    )


def test_a_wrong_output_shows_no_latency_and_no_speed_up() -> None:
    wrong = cell("a", "gpu", p50=0.123, verdict="fail")
    ((_, lines),) = compare([cell("a", "litert"), wrong], "litert").cells
    assert lines == ("wrong output", "wrong_output: rel_l2 0.5 > 0.0001")
    ((_, lines),) = compare([wrong, cell("a", "litert")], "gpu").cells
    assert TIMES not in "".join(lines)


def test_a_cell_without_a_result_says_why() -> None:
    cells = [
        ended("a", "cpu", "unsupported", ReasonCode.UNSUPPORTED_OPERATOR, "RFFT2D version 1 at operator 3"),
        ended("a", "gpu", "failed", ReasonCode.TIMEOUT, "no end after 900 s"),
        cell("a", "litert", p50=None),
    ]
    ((cpu, gpu, litert),) = compare(cells, "litert").cells
    assert cpu == ("unsupported", "unsupported_operator: RFFT2D version 1 at operator 3")
    assert gpu == ("failed", "timeout: no end after 900 s")
    assert litert[:2] == ("no p50: 4 samples; p50 needs 11", "pass")


def test_a_wide_interval_is_written_out() -> None:
    wide = cell(p50=47.5, ci95=(0.02, 111_490.0))
    assert latency(wide) == "≈ 47.5 ms [0.0200 \N{EN DASH} 111\N{NARROW NO-BREAK SPACE}490]"


def test_an_output_without_a_reference_is_not_judged() -> None:
    (((_, facts, _),),) = compare([cell(verdict=None)], None).cells
    assert facts == "not judged"


def test_cells_of_two_levels_do_not_hide_each_other() -> None:
    shown = compare([cell(level="quick"), cell(level="publish")], None)
    assert shown.columns == ("cpu@host-cpu quick", "cpu@host-cpu publish")


def test_counts_and_the_verdict_on_the_whole() -> None:
    unsupported = ended("a", "gpu", "unsupported", ReasonCode.NOT_DELEGATED, "no operator")
    excluded = ended("a", "gpu", "cancelled", ReasonCode.EXCLUDED, "by the rule")
    assert summary([cell(), unsupported]) == "2 cells: 1 done, 1 unsupported"
    assert all_well([cell(), unsupported, excluded])
    assert not all_well([cell(), cell(verdict="fail")])
    assert not all_well([ended("a", "gpu", "failed", ReasonCode.CRASH, "signal 11")])
    assert not all_well([ended("a", "gpu", "cancelled", ReasonCode.CANCELLED, "by the user")])
    assert summary([cell(verdict="fail")]) == "1 cell: 1 wrong output"


def test_of_all_campaigns_the_newest_result_of_a_cell_is_taken() -> None:
    old = replace(cell(p50=9.0), finished_at=datetime(2026, 1, 1, tzinfo=UTC))
    new = replace(cell(p50=1.0), finished_at=datetime(2026, 1, 2, tzinfo=UTC))
    assert newest([new, old, cell("b")]) == [new, cell("b")]
    assert newest([old, new, cell("b")]) == [new, cell("b")]


def test_markdown_keeps_strange_names_as_text() -> None:
    text = markdown_table(["model"], [["<script>|**x**|\u202e`[a](b)`\nsecond"]])
    assert text == (
        "| model |\n| --- |\n| \\<script\\>\\|\\*\\*x\\*\\*\\|⟨U+202E⟩\\`\\[a\\](b)\\`<br>second |\n"
    )


def test_a_reason_is_one_line_below_the_table_with_its_count(capsys: pytest.CaptureFixture[str]) -> None:
    text = "operator after operator " * 40 + "\nsecond line\nthird line"
    long = ended("net", "gpu", "unsupported", ReasonCode.NOT_DELEGATED, text)
    same = replace(long, model="other", cell_id="f" * 12)
    short = ended("third", "gpu", "unsupported", ReasonCode.NO_DEVICE, "no OpenCL device")
    assert cell_lines(long, None)[-1] == reason_text(long)
    comparison_table([long, same, short], None)
    said = capsys.readouterr().out
    (first,) = [line for line in said.splitlines() if line.startswith("[a] ")]
    assert first.startswith("[a] 2 cells: operator after")
    assert first.endswith(f"… (and 2 more lines) (farm show {long.cell_id[:10]})")
    assert len(first) < LONGEST_REASON + 70
    assert "[b] 1 cell: no OpenCL device" in said.splitlines()
    assert said.count("not_delegated [a]") == 2
    assert said.count("second line") == 0
    markdown = comparison_markdown([long, same, short], None)
    assert "- \\[b\\] 1 cell: no OpenCL device" in markdown
    assert markdown.count("| not") + markdown.count("<br>not") == 2


def test_a_long_reason_is_one_line_where_a_cell_ends_and_where_runs_are_compared() -> None:
    text = "gpu: 24 of 24 operators stay on the CPU, the first: operator 0 Vendor0" + ", and why" * 99
    long = ended("net", "gpu", "unsupported", ReasonCode.NOT_DELEGATED, f"{text}\nsecond line")
    event = FarmEvent("finished", long, "", 1, 2, None)
    for line in (line_of(event), line_of(replace(event, kind="retry", text=f"{text}\nsecond line"))):
        assert line is not None
        assert ": gpu: 24 of 24 operators stay on the CPU, the first: operator 0 Vendor0" in line
        assert line.endswith("… (and 1 more line)")
        assert len(line) < LONGEST_REASON + 70
    report = compare_runs(by_names([long]), by_names([long]))
    (row,) = changes_markdown(report, show_all=True).strip().splitlines()[2:]
    assert "before: not\\_delegated: gpu: 24 of 24 operators" in row
    assert len(row) < LONGEST_REASON + 120
    assert report.changes[0].why.count(text) == 2, "the JSON form has it in full"
