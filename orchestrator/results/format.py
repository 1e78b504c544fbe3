"""Turns values into text: one function per kind of value, so that tables and pages agree."""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.wire.labelled import LabelledScore

NOTHING = "—"
TIMES = "\u00d7"
EN_DASH = "\u2013"
MINUS = "\u2212"
_NARROW_SPACE = "\u202f"
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_FORMULA_START = "=+\\-@\uff1d\uff0b\uff0d\uff20"
"""First characters of what a spreadsheet takes for a formula; the last four are full-width forms."""

# Blanks before a formula are skipped by some spreadsheets. Where the list separator is `;`, as in much of
# Europe, or where a tab is one, a text holds several cells, and the quotes around it do not help. Apostrophes
# that are there already are counted, so that one can be taken away again.
_FORMULA = re.compile(
    rf"^(?=[ \u00a0']*[\t\n{_FORMULA_START}])|(?<=[;\t\n])(?=[ \u00a0']*[{_FORMULA_START}])"
)

LONGEST_NAME = 72
"""Characters of a name in a heading or table: one line of text on a page."""

_LAST_DIGIT = 1.25
"""The last digit of a value is at most so many times its uncertainty over 1: at 8 % every value has two."""

_MOST_DIGITS = 4
"""Digits of a value that is known however well: what two sessions of a machine differ in is larger."""

_EXACT = 1e-6
"""The least relative uncertainty that counts, so that its logarithm exists."""

_ROUNDING = 1e-9
"""Slack of a logarithm, so that 8 % of 1 is on the side of two digits."""

_WHOLE_PERCENT = 0.095
"""A share from which on per cents have no decimals: rounded, it has two digits."""

_SECOND_MS = 999.5
"""A duration in ms from which on it is written in seconds: rounded to whole ms it would have four digits."""

_NAME_END = 12
"""Characters kept of a long name's end, where variants of one model differ (`_static_int8`)."""


def milliseconds(value: float | None) -> str:
    """Format a duration in ms, three significant digits, without its unit: `2.31`, `0.123`, `1 234`."""
    if value is None:
        return NOTHING
    if value >= 1000:
        return f"{value:,.0f}".replace(",", _NARROW_SPACE)
    # `threeDigits` of templates/choices.js has the same bounds.
    for bound, digits in ((100.0, 0), (10.0, 1), (1.0, 2), (0.1, 3), (0.01, 4)):
        if value >= bound:
            return f"{value:.{digits}f}"
    return f"{value:.2g}"


def known(value: float, known_to: float | None) -> str:
    """Format a positive value with no more digits than are known; `known_to`: H, the share it may be off.

    The last digit is of the size of the uncertainty: 8 % give two digits, 0.5 % three or four; two where the
    uncertainty is not known.
    """
    # Not `<=`: NaN has no logarithm either.
    if not value > 0.0:
        return "0"
    size = math.floor(math.log10(value))
    digits = 2
    if known_to is not None:
        digits = 1 + size - math.floor(math.log10(value * max(known_to, _EXACT) * _LAST_DIGIT) + _ROUNDING)
    places = min(max(digits, 1), _MOST_DIGITS) - 1 - size
    shown = round(value, places)
    # 9.96 to two digits is 10, not 10.0.
    places -= math.floor(math.log10(shown)) - size if shown else 0
    return f"{shown:.{max(places, 0)}f}"


def percent(value: float) -> str:
    """Format a share in per cent with one digit below ten and whole above: `0.3 %`, `8 %`, `63 %`."""
    return f"{100 * value:.0f} %" if value >= _WHOLE_PERCENT else f"{100 * value:.1g} %"


def change(log: float) -> str:
    """Format the logarithm of a factor of time as a signed share: `+2.1 %` for what takes longer."""
    size = percent(abs(math.expm1(log)))
    # What is shown as 0 has no sign.
    return size if size == percent(0.0) else f"{'+' if log >= 0 else MINUS}{size}"


def short_time(value_ms: float) -> str:
    """Format a duration with its unit and two digits: `64 ms`, `4.1 s`."""
    return f"{known(value_ms, None)} ms" if value_ms < _SECOND_MS else f"{known(value_ms / 1e3, None)} s"


def nanoseconds(value: int | None) -> str:
    """Format a duration in ns as ms text."""
    return milliseconds(None if value is None else value / 1e6)


def sample(value_ns: int) -> str:
    """One raw sample in ms, to the last 100 ns."""
    return f"{value_ns / 1e6:.4f}"


def duration(value_ns: int | None) -> str:
    """Format a time in ns as seconds with one decimal and the unit: `14.2 s`."""
    return NOTHING if value_ns is None else f"{value_ns / 1e9:.1f} s"


def interval(value: tuple[float, float] | None) -> str:
    """Format an interval in ms, `2.28 - 2.35` with an en dash."""
    if value is None:
        return NOTHING
    return f"{milliseconds(value[0])} {EN_DASH} {milliseconds(value[1])}"


def half_width(value: tuple[float, float], like: str) -> str:
    """Half the width of an interval, with as many digits after the point as the text `like` has."""
    digits = len(like.partition(".")[2])
    return f"{(value[1] - value[0]) / 2:.{digits}f}"


def ratio(value: float) -> str:
    """Format a speed-up with a multiplication sign: `1.42x`, `0.052x`, `19.8x`."""
    # templates/compare.js writes the ratios of any two campaigns by the same bounds.
    for bound, digits in ((100.0, 0), (10.0, 1), (0.1, 2)):
        if value >= bound:
            return f"{value:.{digits}f}{TIMES}"
    return f"{value:.2g}{TIMES}"


def ratio_interval(value: tuple[float, float]) -> str:
    """Both ends of a ratio's interval, `1.38 - 1.46` with an en dash."""
    return f"{ratio(value[0])} {EN_DASH} {ratio(value[1])}".replace(TIMES, "")


def byte_count(value: int | None) -> str:
    """Bytes with a binary unit: `24.1 MiB`."""
    if value is None:
        return NOTHING
    if value < 1024:
        return f"{value} B"
    size = value / 1024
    for unit in ("KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f} {unit}" if size < 100 else f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def count(value: int) -> str:
    """Format a count with narrow spaces between thousands."""
    return f"{value:,}".replace(",", _NARROW_SPACE)


def counted(number: int, word: str, ending: str = "s") -> str:
    """Write `1 model`, `2 models`; `ending` is that of several."""
    return f"{number} {word}{'' if number == 1 else ending}"


def error(value: float | None) -> str:
    """Format an error figure: two significant digits, `1.2e-06`; zero is `0`."""
    if value is None:
        return NOTHING
    return "0" if value == 0 else f"{value:.2g}"


def cosine(value: float | None) -> str:
    """Format a cosine, to six digits after the point."""
    return NOTHING if value is None else f"{value:.6f}"


def optional_share(value: float | None) -> str:
    """Format a share of one, or that there is none."""
    return NOTHING if value is None else share(value)


def share(value: float) -> str:
    """Format a share of one, to four significant digits: `0.72`."""
    return f"{value:.4g}"


def rate(value: float) -> str:
    """Format a number per second, to four significant digits or to the whole number."""
    return share(value) if value < 1000 else count(round(value))


def moment(value: datetime | None) -> str:
    """Format a time to the minute, in UTC."""
    return NOTHING if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M UTC}"


def short_name(text: str, limit: int = LONGEST_NAME) -> str:
    """Shorten a name for a heading or table: leave out the middle of one above `limit` characters."""
    if len(text) <= limit:
        return text
    # As `short` of templates/shards.js does with the names of shards.
    return f"{text[: limit - _NAME_END - 1]}…{text[-_NAME_END:]}"


def visible(text: str) -> str:
    """Return text without hidden characters: control, direction and zero-width characters become `⟨U+202E⟩`.

    Line feeds and tabs stay.
    """
    # Nearly every text: none of its characters needs a look.
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible_character(c) for c in text)


def _visible_character(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in _HIDDEN:
        return character
    return f"⟨U+{ord(character):04X}⟩"


def plain(value: Any) -> Any:
    """Return a record, a message or a moment as JSON has it: for `default` of `json.dumps`."""
    if isinstance(value, datetime):
        return value.isoformat()
    if hasattr(value, "model_dump"):  # pydantic, which `farm --help` does without
        return value.model_dump(mode="json")
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def csv_text(text: str) -> str:
    """Text for a CSV cell: hidden characters made visible, an apostrophe before what would run as a formula.

    docs/results-format.md says how a reader takes the apostrophes away.
    """
    return _FORMULA.sub("'", visible(text))


def labelled(score: LabelledScore) -> str:
    """Write a score: `top1 0.72 [0.63 to 0.8] (72 of 100 right), at least 0.7: inconclusive`."""
    asked = "" if score.at_least is None else f", at least {score.at_least:g}"
    count = f"{score.samples} samples" if score.right is None else f"{score.right} of {score.samples} right"
    text = f"{score.metric} {share(score.share)}{_range(score.ci95)} ({count}){asked}"
    if (drop := score.drop) is not None:
        most = "" if drop.max_drop is None else f" (a drop of {drop.max_drop:g} is allowed)"
        text += f", {drop.value:+.3g}{_range(drop.ci95)} against {drop.baseline}{most}"
        text += f", {counted(drop.changed, 'answer')} changed"
    return text if score.verdict is None else f"{text}: {score.verdict}"


def _range(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" [{share(interval[0])} to {share(interval[1])}]"
