"""The files, folders and make targets that the documents name exist."""

from __future__ import annotations

import re

import pytest

from tests.attack.elsewhere import ELSEWHERE
from tests.needs import REPOSITORY

DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    *sorted(f"docs/{p.name}" for p in (REPOSITORY / "docs").glob("*.md")),
]
PLACE = re.compile(
    r"`((?:orchestrator|agent|runtime|templates|tests|benchmarks|examples|docs|requirements)/[^`\s]*)`"
)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
TARGET = re.compile(r"(?:`|^    )make ([a-z-]+)", re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_file_that_a_document_names_exists(document):
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    named = {place for place in PLACE.findall(text) if "<" not in place and "*" not in place}
    assert sorted(place for place in named if not (REPOSITORY / place).exists()) == []


@pytest.mark.parametrize("document", [*DOCUMENTS, "benchmarks/README.md", "ansible/README.md"])
def test_a_link_of_a_document_leads_somewhere(document):
    path = REPOSITORY / document
    links = LINK.findall(path.read_text(encoding="utf-8"))
    assert sorted(link for link in links if not (path.parent / link).exists()) == []


@pytest.mark.parametrize("document", [*DOCUMENTS, "benchmarks/README.md"])
def test_a_make_target_that_a_document_names_exists(document):
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    rules = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    assert sorted(set(TARGET.findall(text)) - rules) == []


@pytest.mark.parametrize("floor", ["orchestrator", "agent", "runtime"])
def test_the_architecture_names_every_room(floor):
    text = (REPOSITORY / "docs/architecture.md").read_text(encoding="utf-8")
    rooms = [p.name for p in (REPOSITORY / floor).iterdir() if p.is_dir() and not p.name.startswith("_")]
    assert [room for room in sorted(rooms) if f"| `{room}/`" not in text] == []


CLAIM = re.compile(r"\[(\w+)\]\(\.\./(tests/[\w/]+\.py)\)")


def test_every_claim_of_the_threat_model_names_its_tests():
    text = (REPOSITORY / "docs/security.md").read_text(encoding="utf-8")
    stops = text[text.index("## What each boundary stops") : text.index("## The sandbox of a runner")]
    claims = re.split(r"^- ", stops, flags=re.MULTILINE)[1:]
    assert len(claims) > 20
    assert [claim for claim in claims if not CLAIM.search(claim)] == []


def test_every_cell_of_who_may_do_what_to_whom_has_its_test_or_says_that_nothing_stops_it():
    text = (REPOSITORY / "docs/security.md").read_text(encoding="utf-8")
    table = text[text.index("## Who may do what to whom") : text.index("## What each boundary stops")]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| **")]
    assert len(rows) >= 10
    assert {len(row) for row in rows} == {6}
    said = ("not stopped", "what a model", "—")
    bare = [cell for row in rows for cell in row[1:] if not CLAIM.search(cell)]
    assert [cell for cell in bare if not any(word in cell for word in said)] == []


def test_a_test_that_the_threat_model_or_the_suite_of_attacks_names_exists():
    text = (REPOSITORY / "docs/security.md").read_text(encoding="utf-8")
    named = {f"{path}::test_{name}" for name, path in CLAIM.findall(text)}
    missing = [
        test
        for test in sorted(named | ELSEWHERE.keys())
        for path, _, name in [test.partition("::")]
        if f"def {name}(" not in (REPOSITORY / path).read_text(encoding="utf-8")
    ]
    assert missing == []
