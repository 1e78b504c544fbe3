"""The comparison table: what a person reads after a campaign."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from agent.wire.messages import Delegation, ReasonCode
from orchestrator.cli.markdown import markdown_table
from orchestrator.cli.outcome import LONGEST_REASON, short_reason
from orchestrator.cli.results import newest
from orchestrator.results.comparison import all_well, cell_lines, compare, latency, reason_text, summary
from tests.orchestrator.cli.records import cell, ended, partly

TIMES = "\N{MULTIPLICATION SIGN}"
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
    assert shown.cells[0] == (("2.00 ±0.10 ms", "pass"), (f"1.00 ±0.10 ms 2.00{TIMES}", "70/70 ops, pass"))
    assert shown.cells[1] == (("400 ms", "pass"), (f"1.00 ±0.10 ms 400{TIMES}", "69/70 ops, pass"))


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
    assert litert == ("no p50: 4 samples; p50 needs 11", "pass")


def test_a_wide_interval_is_written_out() -> None:
    wide = cell(p50=47.5, ci95=(0.02, 111_490.0))
    assert latency(wide) == "≈ 47.5 ms [0.0200 \N{EN DASH} 111\N{NARROW NO-BREAK SPACE}490]"


def test_an_output_without_a_reference_is_called_unjudged() -> None:
    (((_, facts),),) = compare([cell(verdict=None)], None).cells
    assert facts == "unjudged"


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


def test_a_long_reason_is_cut_and_names_the_command_that_shows_all_of_it() -> None:
    long = ended("net", "gpu", "unsupported", ReasonCode.NOT_DELEGATED, "operator after operator " * 40)
    assert cell_lines(long, None)[-1] == reason_text(long)
    said = short_reason(long)
    assert len(said) < LONGEST_REASON + 40
    assert said.startswith("not_delegated: operator")
    assert f"farm show {long.cell_id[:10]}" in said
