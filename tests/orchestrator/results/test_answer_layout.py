"""The layout of the answer: no line is wider than asked, a wider one has more columns, never more lines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.results.answer.entries import Answer, Column, Entry, Title
from orchestrator.results.answer.layout import cut_end, cut_middle, left, lines, right, width

WIDTHS = (60, 80, 100, 120, 200)
TITLE = Title("demo", ("3 models", "AMD EPYC, 2 threads", "quick", "23 Nov 08:06"), "9/9 right")
MORE = {"±": "8%", "ops": "119/119", "cold": "4.1s", "warm": "120ms", "p90": "5.55", "device": "AMD EPYC"}
NAMES = ("resnet18", "torchvision_efficientnet_b0", "torchvision_mobilenet_v2__static_int8")


def column(heading: str, entries: tuple[Entry | None, ...], mean: str = "") -> Column:
    return Column(heading, entries, mean)


def baseline(count: int = 3) -> Column:
    return column("litert", tuple(Entry(time="20.2 ms", more=MORE) for _ in range(count)))


def contender(heading: str = "gpu (OpenCL on CPU)", count: int = 3) -> Column:
    shown = tuple(Entry("▲", "11.1", "1.8x", more=MORE) for _ in range(count))
    return column(heading, shown, "5.0x slower")


def answer(*columns: Column, models: tuple[str, ...] = NAMES, **others: object) -> Answer:
    return Answer(TITLE, models, columns, further=tuple(MORE), **others)  # type: ignore[arg-type]


SENTENCES = (("gpu beats litert on 5 of 9 (up to 1.8x)", ", loses on 1 (2.4x)", ", equal on 3" * 9),)
CASES = {
    "two delegates": answer(baseline(), contender(), sentences=SENTENCES, legend=("▲▼ sure", "= the same")),
    "twelve delegates": answer(baseline(), *(contender(f"delegate-{n}") for n in range(11))),
    "one delegate": answer(baseline()),
    "no baseline": answer(
        column("cpu", (Entry(time="1.0 ms"),) * 3), column("gpu", (Entry(time="2.0"), None, None))
    ),
    "long names": answer(baseline(2), contender(count=2), models=("L" * 300, "a" + "_" * 200 + "int8")),
    "wide unicode": answer(baseline(2), contender("延遲" * 40, 2), models=("模型" * 40, "🙂" * 30)),
    "nothing measured": answer(
        column("gpu", (Entry(word="unsupported [a]"),) * 3), notes=("[a] " + "why " * 90,)
    ),
    "a void one": answer(baseline(), column("gpu", (Entry(word="void [a]"), *contender().entries[1:]))),
    "an open one": answer(
        baseline(), column("gpu", (Entry("·", "~7", "1.03x"),) * 3), legend=("· open: 3" * 30,)
    ),
    "no cells": Answer(TITLE, (), ()),
    "a long title": Answer(
        Title("n" * 99, ("9 models", "d" * 99, "quick"), "27/27 right"), NAMES, (baseline(),)
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_no_line_is_wider_than_asked_and_a_wider_terminal_has_no_more_lines(case):
    found = [lines(CASES[case], columns) for columns in WIDTHS]
    for columns, shown in zip(WIDTHS, found, strict=True):
        assert max(map(width, shown)) <= columns, shown
        assert all(line == line.rstrip() for line in shown)
    counts = [len(shown) for shown in found]
    assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("columns", WIDTHS)
def test_a_model_has_one_line(case, columns):
    one = CASES[case]
    shown = lines(one, columns)
    if not one.models:
        assert len(shown) == 1
        return
    heading = shown.index("") + 1
    assert shown[heading].startswith("model")
    for row, name in zip(shown[heading + 1 :], one.models, strict=False):
        assert row.startswith(name[:3])


def test_a_wider_terminal_gets_more_columns():
    shown = {columns: lines(CASES["two delegates"], columns)[3] for columns in WIDTHS}
    assert shown[60].split() == ["model", "litert", "gpu", "(OpenCL", "on", "CPU)"]
    assert shown[80].split() == ["model", "litert", "±", "gpu", "(OpenCL", "on", "CPU)", "±"]
    assert {"±", "ops", "cold"} <= set(shown[120].split())
    assert set(MORE) <= set(shown[200].split())


def test_delegates_are_left_out_from_the_right_and_the_legend_says_how_to_see_them():
    shown = lines(CASES["twelve delegates"], 80)
    assert "delegate-0" in shown[2]
    assert "delegate-10" not in shown[2]
    (said,) = [line for line in shown if "COLUMNS=" in line]
    left_out = 12 - 1 - shown[2].count("delegate-")
    assert said.startswith(f"+{left_out} columns: COLUMNS=")
    wide = int(said.partition("COLUMNS=")[2].split()[0])
    assert lines(CASES["twelve delegates"], wide)[2].count("delegate-") == 11
    assert "COLUMNS=" not in "".join(lines(CASES["twelve delegates"], wide))


def test_names_are_cut_in_the_middle_and_keep_their_ends():
    shown = lines(CASES["two delegates"], 60)
    assert any(line.startswith("torchvision_m") and "int8 " in line and "…" in line for line in shown)
    assert shown[0].endswith("9/9 right")


def test_the_last_clauses_of_a_sentence_give_way():
    assert (
        lines(CASES["two delegates"], 60)[1] == "gpu beats litert on 5 of 9 (up to 1.8x), loses on 1 (2.4x)."
    )
    assert lines(CASES["two delegates"], 200)[1].endswith("equal on 3.")


@pytest.mark.parametrize(
    ("text", "limit", "middle", "end"),
    [
        ("resnet18", 8, "resnet18", "resnet18"),
        ("torchvision_mobilenet_v2__int8", 16, "torchvisio…_int8"[:16], "torchvision_mob…"),
        ("模型模型模型", 7, "模型…型", "模型模…"),
        ("ab", 1, "…", "…"),
        ("e\u0301e\u0301e\u0301", 3, "e\u0301e\u0301e\u0301", "e\u0301e\u0301e\u0301"),
    ],
)
def test_a_text_is_cut_to_columns_of_a_terminal(text, limit, middle, end):
    assert (cut_middle(text, limit), cut_end(text, limit)) == (middle, end)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40), st.integers(1, 50))
def test_cut_and_padded_texts_have_the_columns_asked_for(text, limit):
    for short in (cut_middle(text, limit), cut_end(text, limit)):
        assert width(short) <= limit
        assert width(left(short, limit)) == width(right(short, limit)) == limit


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=5),
    st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=6),
    st.integers(40, 240),
)
def test_whatever_the_names_are_no_line_is_too_wide(models, headings, columns):
    shown = Answer(
        TITLE, tuple(models), tuple(contender(one, len(models)) for one in headings), further=tuple(MORE)
    )
    assert max(map(width, lines(shown, columns))) <= columns
