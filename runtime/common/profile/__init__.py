"""A profile of a model, and its forms: text, LiteRT's tables, CSV, and a flame graph."""

from collections.abc import Iterable
from typing import Literal, TypeAlias, get_args

from runtime.common.profile.beside import LiteRtNode, LiteRtTimes
from runtime.common.profile.forms import flame_page, table_lines, text_lines
from runtime.common.profile.model import ModelProfile, OperatorTime, Peaks, Place, ProfileRow, TypeTime

__all__ = [
    "FORMS",
    "Form",
    "LiteRtNode",
    "LiteRtTimes",
    "ModelProfile",
    "OperatorTime",
    "Peaks",
    "Place",
    "ProfileRow",
    "TypeTime",
    "written",
]

Form: TypeAlias = Literal["text", "tables", "csv", "flame"]
"""`tables` and `csv` are LiteRT's; `flame` is a page that a browser opens."""

FORMS: tuple[Form, ...] = get_args(Form)


def written(profile: ModelProfile, heading: str, form: Form, litert: LiteRtTimes | str = "") -> Iterable[str]:
    """Return the lines of a profile in one of its forms; `litert`, its times or why it has none, in text."""
    if form == "text":
        return text_lines(profile, heading, litert)
    if form == "flame":
        return (flame_page(profile, heading),)
    return table_lines(profile, is_csv=form == "csv")
