"""Attacks by models: through reader, planner, runner, database, tables, CSV and pages."""

from __future__ import annotations

import csv
import io
import unicodedata

import pytest

from tests.attack.hostile_models import HTML, LONG, QUICK
from tests.attack.lab import VICTIM

DEVICE = f"{VICTIM}.host-cpu"


TURNS_TEXT = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def controls(text: str) -> set[str]:
    """Characters that a terminal acts on or that turn text around."""
    found = {letter for letter in text if letter not in "\n\t" and unicodedata.category(letter) == "Cc"}
    return found | TURNS_TEXT & set(text)


def held(lab, cells: list[dict]) -> None:
    """Every cell has ended with a reason, nothing was carried out, and nothing shows as more than text."""
    silent = {
        cell["model"]: cell["status"] for cell in cells if not (cell["reason"] or {}).get("text", "").strip()
    }
    assert set(silent.values()) <= {"done"}, silent
    assert {cell["status"] for cell in cells} <= {"done", "failed", "unsupported"}
    assert not list(lab.folder.rglob("owned*"))
    for words in (("results",), ("status",)):
        told = lab.call(*words)
        assert controls(told.stdout + told.stderr) == set(), words
    table = lab.call("results", "--format", "csv").stdout
    assert controls(table) <= {"\r"}
    fields = [field for row in csv.reader(io.StringIO(table)) for field in row]
    assert not [field for field in fields if field.lstrip()[:1] in ("=", "@", "+")], (
        "a spreadsheet would run it"
    )
    assert lab.call("site", "build", "--out", str(lab.folder / "home" / "site")).returncode == 0
    pages = [page.read_text() for page in (lab.folder / "home" / "site").rglob("*.html")]
    assert pages
    for text in pages:
        assert HTML not in text
        assert "<img src=x" not in text
        assert controls(text) <= {"\r"}


@pytest.mark.attack
def test_names_shapes_and_cycles(lab):
    """NUL, HTML, formulas, escapes, a gigantic shape, a call of itself: a reason each, shown as text."""
    made = {name: make() for name, make in QUICK.items()}
    cells = lab.submit(made, DEVICE)
    assert {cell["model"] for cell in cells} == set(QUICK)
    held(lab, cells)
    ((cell_id,),) = lab.rows("SELECT cell_id FROM cell WHERE model = 'worst'")
    told = lab.call("show", cell_id)
    assert told.returncode == 0, told.stderr
    assert controls(told.stdout) == set()


@pytest.mark.attack
@pytest.mark.parametrize("delegate", ["cpu", "litert"])
def test_files_that_lie(lab, delegate):
    """Offsets, counts, other files, endless chains: a reason each, and the next model is measured."""
    cells = lab.submit({name: make() for name, make in LONG.items()}, DEVICE, delegate)
    assert {cell["model"] for cell in cells} == set(LONG)
    held(lab, cells)
    lab.measure()


@pytest.mark.attack
def test_names_on_every_delegate(lab):
    """The same names are harmless with LiteRT."""
    cells = lab.submit({name: make() for name, make in QUICK.items()}, DEVICE, "litert")
    held(lab, cells)
    lab.measure()


@pytest.mark.attack
def test_a_model_is_measured_after_all_of_this(lab):
    """The lab does what it is there for."""
    lab.measure()
