"""One protection is taken away as `make mutate` does it, beside a change that harms nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.mutants import __main__ as command
from tests.mutants.catalogue import mutants
from tests.needs import REPOSITORY

PROTECTION = "artifacts/agent-size"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harmless", "end"),
    [
        pytest.param(False, "exit status 0: 1 noticed", marks=pytest.mark.exhaustive),
        (True, "exit status 1: 1 noticed, 1 survived"),
    ],
    ids=["noticed", "survives"],
)
def test_what_survives_is_an_error_and_the_report_says_so(tmp_path, monkeypatch, harmless, end):
    (picked,) = [mutant for mutant in mutants() if mutant.name == PROTECTION]
    chosen = [picked]
    if harmless:
        source = (REPOSITORY / picked.file).read_text()
        chosen.append(replace(picked, name="nothing", what="A comment is there.", text=f"{source}# None.\n"))
    monkeypatch.setattr(command, "mutants", lambda: chosen)
    report = tmp_path / "mutants.md"
    assert command.main(["--workers", "1", "--out", str(report)]) == int(harmless)
    lines = report.read_text().splitlines()
    assert lines[2].startswith("Run on ")
    assert lines[2].endswith(f"; {end}.")
    assert ("**survived**" in report.read_text()) is harmless
