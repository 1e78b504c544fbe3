"""A profile's forms: LiteRT's tables as parsers read them, CSV, text with peaks, a flame graph's data."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace

import pytest

from runtime.common.profile import ModelProfile, OperatorTime, Peaks, ProfileRow, written
from runtime.common.profile.forms import frames

OPERATORS = (
    OperatorTime(0, "CONV_2D", "a, b", "kernel", 5000.0, 7000.0, 6000.0, 0.5, is_divided=True),
    OperatorTime(1, "RELU", "c", "kernel", 1000.0, 1000.0, 1000.0, 0.1, is_divided=True),
    OperatorTime(2, "RESHAPE", "d", "none", 0.0, 0.0, 0.0, 0.0, is_divided=False),
    OperatorTime(3, "TOPK_V2", "</script><b>", "cpu", 4000.0, 9000.0, 3000.0, 0.4, is_divided=False),
)
ROWS = (
    ProfileRow(0, "kernel", "f32_conv", "3x3", (0, 1), 6000.0, 8000.0, 7000.0, 0.6, flops=12_000, bytes=3000),
    ProfileRow(1, "cpu", "TOPK_V2", "", (3,), 4000.0, 9000.0, 3000.0, 0.4, flops=0, bytes=0),
)
PROFILE = ModelProfile(
    2, 9000.0, (17_000, 9_000), ROWS, OPERATORS, {"parse": 1_000_000, "compile": 3_000_000}, Peaks(4.0, 2.0)
)
NODE = re.compile(
    r"\t *(?P<type>\S+)\t *(?P<first>[\d.]+)\t *(?P<avg>[\d.]+)\t *(?P<share>[\d.]+)%\t *(?P<cdf>[\d.]+)%"
    r"\t *[\d.]+\t *(?P<calls>\d+)\t(?P<name>.*)"
)
"""A row of the run order and of the slowest, as parsers of LiteRT's output match it."""


def tables(form: str) -> dict[str, list[str]]:
    """Return the lines of the runs' block below each banner."""
    text = list(written(PROFILE, "net", form))
    block = text[text.index("Operator-wise Profiling Info for Regular Benchmark Runs:") :]
    found: dict[str, list[str]] = {}
    rows: list[str] = []
    for line in block[: block.index("Delegate internal:")]:
        if line.startswith("="):
            found[line.strip("= ")] = rows = []
        elif found:
            rows.append(line)
    return found


def test_the_three_tables_have_every_operator_that_ran_in_litert_s_columns():
    found = tables("tables")
    assert list(found) == ["Run Order", "Top by Computation Time", "Summary by node type"]
    assert found["Run Order"][0] == (
        "\t                             [node type]\t  [first]\t [avg ms]\t     [%]\t  [cdf%]\t  [mem KB]"
        "\t[times called]\t[Name]"
    )
    rows = [NODE.fullmatch(line) for line in found["Run Order"][1:4]]
    assert [row["type"] for row in rows] == ["CONV_2D", "RELU", "TOPK_V2"]
    assert [row["name"] for row in rows] == ["[a, b]:0", "[c]:1", "[</script><b>]:3"]
    assert [float(row["share"]) for row in rows] == [60, 10, 30]
    assert [float(row["cdf"]) for row in rows] == [60, 70, 100]
    slowest = [NODE.fullmatch(line)["type"] for line in found["Top by Computation Time"][1:4]]
    assert slowest == ["CONV_2D", "TOPK_V2", "RELU"]
    assert [line.split()[0] for line in found["Summary by node type"][1:4]] == slowest
    assert found["Summary by node type"][5:8] == [
        "Timings (microseconds): count=2 first=17 curr=9 min=9 max=17 avg=13 std=4 p5=9 median=17 p95=17",
        "Memory (bytes): count=0",
        "3 nodes observed",
    ]


def test_the_csv_has_as_many_fields_in_each_row_as_in_its_heading():
    for title, lines in tables("csv").items():
        rows = list(csv.reader(lines[: lines.index("")], skipinitialspace=True))
        assert {len(row) for row in rows} == {len(rows[0])}, title
        if title == "Run Order":
            assert rows[0] == ["node type", "first", "avg_ms", "%", "cdf%", "mem KB", "times called", "name"]
            assert rows[1] == ["CONV_2D", "0.007", "0.006", "60%", "60%", "0", "1", "[a\t b]:0"]


def test_the_start_and_a_delegate_s_kernels_have_blocks_of_their_own():
    text = list(written(PROFILE, "net", "tables"))
    start = text[: text.index("Operator-wise Profiling Info for Regular Benchmark Runs:")]
    assert start[0] == "Profiling Info for Benchmark Initialization:"
    assert "Timings (microseconds): count=1 curr=4000(all same)" in start
    inner = text[text.index("Delegate internal:") :]
    (kernel, *_) = [match for line in inner if (match := NODE.fullmatch(line))]
    assert (kernel["type"], kernel["name"]) == ("DelegateOpInvoke", "Delegate/f32_conv:0")
    assert "Delegate internal:" not in written(replace(PROFILE, rows=()), "net", "tables")


def test_rates_stand_beside_their_shares_of_the_measured_peaks():
    text = "\n".join(written(PROFILE, "net", "text"))
    assert "Measured peaks of the device with these threads: 4.0 GFLOP/s in fp32, 2.0 GB/s" in text
    assert re.search(r"f32_conv +6\.0 +60\.00 +2\.00 +50% +0\.50 +25%\n", text)
    unknown = replace(PROFILE, peaks=None, no_peaks="the delegate x measures none")
    assert "not known: the delegate x measures none" in "\n".join(written(unknown, "net", "text"))


@pytest.mark.parametrize("profile", [PROFILE, replace(PROFILE, rows=())])
def test_a_frame_is_as_long_as_its_parts_and_the_page_keeps_the_model_s_names_as_data(profile):
    def check(frame: dict) -> None:
        inner = frame["frames"]
        assert not inner or sum(one["ns"] for one in inner) == pytest.approx(frame["ns"])
        for one in inner:
            check(one)

    root = frames(profile)
    check(root)
    assert root["ns"] == pytest.approx(10_000)
    (page,) = written(profile, "<net>", "flame")
    held = re.search(r'<script id="frames" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert json.loads(held[1]) == {"title": "<net>", "root": root}
    assert not re.search(r"(src|href)=", page), "the page loads nothing"
