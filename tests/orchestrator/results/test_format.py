"""Values become text in one way each."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.results import format as text
from tests.needs import REPOSITORY

FORMAT = (REPOSITORY / "docs" / "results-format.md").read_text(encoding="utf-8")
THIN = "\u202f"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "—"), (0.0, "0"), (0.00123, "0.0012"), (0.0123, "0.0123"), (0.1234, "0.123"), (1.236, "1.24"),
        (12.36, "12.4"), (123.6, "124"), (1234.4, f"1{THIN}234"), (1234567.0, f"1{THIN}234{THIN}567"),
    ],
)  # fmt: skip
def test_milliseconds_have_three_digits(value, shown):
    assert text.milliseconds(value) == shown


@given(st.floats(min_value=1e-3, max_value=1e7))
def test_milliseconds_stay_within_the_rounding_of_the_value(value):
    shown = float(text.milliseconds(value).replace(THIN, ""))
    assert shown == pytest.approx(value, rel=0.06 if value < 0.01 else 0.006)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "—"), (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (229_032, "224 KiB"),
        (14_078_620, "13.4 MiB"), (3 * 2**30, "3.0 GiB"), (5 * 2**40, "5.0 TiB"),
    ],
)  # fmt: skip
def test_bytes_carry_their_unit(value, shown):
    assert text.byte_count(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(123.4, "123"), (19.84, "19.8"), (1.416, "1.42"), (0.1, "0.10"), (0.0374, "0.037")]
)
def test_ratio_is_marked_as_a_factor(value, shown):
    assert text.ratio(value) == f"{shown}{text.TIMES}"


def test_moment_is_utc_whatever_the_zone():
    in_berlin = datetime(2026, 11, 21, 3, 30, tzinfo=timezone(timedelta(hours=1)))
    assert text.moment(in_berlin) == text.moment(datetime(2026, 11, 21, 2, 30)) == "2026-11-21 02:30 UTC"  # noqa: DTZ001
    assert text.moment(datetime(2026, 11, 21, 2, 30, tzinfo=UTC)) == "2026-11-21 02:30 UTC"


@given(st.text())
def test_visible_text_hides_nothing_and_loses_nothing_else(value):
    shown = text.visible(value)
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert not [c for c in shown if unicodedata.category(c) in hidden and c not in "\n\t"]
    plain = [c for c in value if unicodedata.category(c) not in hidden or c in "\n\t"]
    assert shown == value if len(plain) == len(value) else len(shown) > len(value)


def test_visible_names_the_hidden_character():
    assert text.visible("invoice\u202egpj.exe\x1b") == "invoice⟨U+202E⟩gpj.exe⟨U+001B⟩"


def test_short_name_keeps_both_ends_of_a_long_one():
    assert text.short_name("a" * 72) == "a" * 72
    short = text.short_name("begin" + "x" * 10_000 + "end")
    assert len(short) == 72
    assert short.startswith("begin")
    assert short.endswith("xend")


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\n=1", "\uff1d1", " =1", "\u00a0=1", "'=1", "' =1"]


@pytest.mark.parametrize("value", FORMULAS)
def test_csv_defuses_what_a_spreadsheet_would_run(value):
    assert text.csv_text(value).startswith("'")
    assert text.csv_text(value).count("'") > value.count("'")
    assert text.csv_text(f"a{value}").startswith("a")


@pytest.mark.parametrize("separator", [";", "\t", "\n"])
def test_csv_defuses_formulas_behind_another_separator_of_spreadsheets(separator):
    assert text.csv_text(f"a{separator}=1") == f"a{separator}'=1"
    assert text.csv_text(f'a"{separator} @SUM(A1)') == f"a\"{separator}' @SUM(A1)"


def test_csv_leaves_ordinary_text_alone():
    for plain in ("model-1", "a = b", "[1, -1]", "x'=y", "'tis", "took 3 s; try again", "größer als 2"):
        assert text.csv_text(plain) == plain


def test_csv_holds_no_control_character():
    assert text.csv_text("a\x1b[31mb\x00c\r") == "a⟨U+001B⟩[31mb⟨U+0000⟩c⟨U+000D⟩"


@given(st.text(st.sampled_from("=+-@'; \t\n\u00a0\uff1dab1\x1b")))
def test_csv_text_comes_back_with_the_documented_expression(value):
    (documented,) = re.findall(r'`re\.sub\(r"(.+)", "", text\)`', FORMAT)
    assert re.sub(documented, "", text.csv_text(value)) == text.visible(value)
