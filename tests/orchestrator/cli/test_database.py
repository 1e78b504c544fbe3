"""`farm db`, and submissions that the store has no room for."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.orchestrator.cli.conftest import Call, Limited, Shell
from tests.orchestrator.cli.models import unary_model
from tests.services import known

CAMPAIGN = """\
version: 1
campaign: small
defaults:
  measure: {warmup: {runs: 1, min_seconds: 0}, blocks: 1, rounds: 3, slice: {seconds: 0}}
models:
  - {id: good, source: good.tflite}
delegates:
  cpu: {kind: cpu, threads: 1}
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    # Its own agent makes the references, of which the farm then has records: nobody else's are known there.
    folder = tmp_path_factory.mktemp("measured")
    shell = Limited(folder, ((known.VARIABLE, str(folder / "known")),))
    shell.write("good.tflite", unary_model())
    shell.write("models.yaml", CAMPAIGN)
    ran = shell.farm("submit", "models.yaml")
    assert ran.code == 0, ran.err
    return shell


@pytest.mark.slow
def test_a_measured_farm_is_well_and_is_copied(call: Call, measured: Shell) -> None:
    ran = call(measured, "db", "check", "--deep")
    assert ran.code == 0, ran.out
    assert "ok   artifacts: 5 files are there, and every hash is right" in ran.out
    assert call(measured, "db", "check", "--json").json()["ok"]
    copied = call(measured, "db", "backup", "copy.db", "--json")
    assert copied.json()["bytes"] == (measured.folder / "copy.db").stat().st_size
    again = call(measured, "db", "backup", "copy.db")
    assert (again.code, "exists already" in again.err) == (1, True)


@pytest.fixture
def restored(measured: Shell, tmp_path: Path) -> Limited:
    """Make an older program's home with the backup and the store of a newer release."""
    lab = Limited(tmp_path, (("FARM_BROKER_URL", "redis://127.0.0.1:1"),))
    lab.home.mkdir(mode=0o700)
    shutil.copytree(measured.home / "store", lab.home / "store")
    assert measured.farm("db", "backup", lab.home / "farm.db").code == 0
    with closing(sqlite3.connect(lab.home / "farm.db")) as newer:
        newer.execute("UPDATE alembic_version SET version_num = '9999'")
        newer.execute("ALTER TABLE campaign ADD COLUMN mood TEXT")
        newer.commit()
    return lab


def rows(database: Path) -> list[str]:
    """All that is in an SQLite file, as the statements that would make it again."""
    with closing(sqlite3.connect(database)) as opened:
        return list(opened.iterdump())


def test_a_newer_releases_backup_is_refused_by_every_verb_in_one_line_and_left_as_it_is(
    restored: Limited,
) -> None:
    restored.write("good.tflite", unary_model())
    restored.write("models.yaml", CAMPAIGN)
    database = restored.home / "farm.db"
    content, files = rows(database), {path.name for path in restored.home.glob("farm.db*")}
    for verb in ("lab serve", "submit models.yaml", "db backup x.db", "db prune --keep 1d"):
        ran = restored.farm(*verb.split())
        assert (ran.code, ran.out, ran.err.count("\n")) == (4, "", 1), f"{verb}: {ran.out}{ran.err}"
        assert "farm.db has revision 9999, which this version of the farm does not know" in ran.err, verb
        assert "upgrade the farm, or use another database" in ran.err, verb
    told = restored.farm("doctor")
    assert (told.code, "fix: upgrade the farm" in told.out) == (1, True), told.out
    assert rows(database) == content
    assert {path.name for path in restored.home.glob("farm.db*")} == files


def test_a_damaged_store_is_told_with_the_exit_code(call: Call, measured: Shell) -> None:
    (path,) = [
        path
        for path in (measured.home / "store" / "sha256").glob("*/*")
        if path.read_bytes() == (measured.folder / "good.tflite").read_bytes()
    ]
    kept = path.read_bytes()
    path.unlink()
    try:
        ran = call(measured, "db", "check")
        assert (ran.code, "BAD  artifacts: 1 of 5: model" in ran.out) == (1, True)
    finally:
        path.write_bytes(kept)


def test_references_are_shown_and_forgotten_by_the_models_name(call: Call, measured: Shell) -> None:
    found = call(measured, "db", "references", "--json").json()["models"]
    assert [(entry["names"], len(entry["references"])) for entry in found] == [(["good"], 3)]
    assert all(record["handed_on"] for record in found[0]["references"]), "this machine's own agent made them"
    shown = call(measured, "db", "references", "good").out
    assert "good  reference of LiteRT " in shown
    for arguments, words in (
        (("--forget",), "--forget needs a model"),
        (("bad",), "no campaign has a model"),
    ):
        ran = call(measured, "db", "references", *arguments)
        assert (ran.code, words in ran.err) == (2, True), ran.err
    assert "forgotten: 3 references of 1 models" in call(measured, "db", "references", "good", "--forget").out
    assert "known: 0 references" in call(measured, "db", "references").out


def test_pruning_says_what_it_wants_and_what_it_did(call: Call, measured: Shell) -> None:
    for arguments, words in (
        ((), "an option is needed"),
        (("--keep", "soon"), "12h, 90d, 8w"),
        (("--keep", "0d"), "12h, 90d, 8w"),
        (("--keep-campaigns", "-1"), "greater than or equal to 0"),
    ):
        ran = call(measured, "db", "prune", *arguments)
        assert (ran.code, words in ran.err) == (2, True), ran.err
    assert "deleted: 0 campaigns" in call(measured, "db", "prune", "--keep", "1h").out
    dry = call(measured, "db", "prune", "--keep-campaigns", "0", "--dry-run")
    assert "small, ended" in dry.out
    assert "would be deleted: 1 campaigns" in dry.out
    assert (
        len(call(measured, "db", "prune", "--keep-campaigns", "0", "--dry-run", "--json").json()["campaigns"])
        == 1
    )
    assert "good" in call(measured, "results").out


@pytest.mark.slow
def test_a_full_budget_refuses_a_submission_with_the_figure_and_keeps_what_is_there(
    call: Call, measured: Shell
) -> None:
    small = Limited(measured.folder, (("FARM_STORE_BYTES", "100"),))
    ran = call(small, "submit", "models.yaml", "--force")
    assert ran.code == 1
    assert "its budget is 100 bytes: nothing new is accepted" in ran.err
    assert len(call(small, "results", "--format", "json").json()) == 1
    doctor = call(small, "doctor")
    assert "BAD  store:" in doctor.out
    assert "farm db prune" in doctor.out


def test_a_model_over_the_cap_is_refused(call: Call, tmp_path: Path) -> None:
    shell = Limited(tmp_path, (("FARM_ARTIFACT_BYTES", "50"),))
    shell.write("good.tflite", unary_model())
    ran = call(shell, "submit", "good.tflite")
    assert (ran.code, "larger than 50 bytes" in ran.err) == (2, True), ran.err
