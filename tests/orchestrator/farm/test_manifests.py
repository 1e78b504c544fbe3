"""A campaign keeps the file that it was submitted with, and says where its models come from."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlmodel import select

from agent.wire.messages import AgentHello
from orchestrator import cli
from orchestrator.config.home import FarmHome
from orchestrator.db import tables
from orchestrator.db.campaigns.manifests import manifest
from orchestrator.db.campaigns.retention import forget
from orchestrator.db.engine.sessions import Database
from orchestrator.farm import Farm
from orchestrator.farm.local.one_machine import PresentDevices
from orchestrator.farm.submit.running import Running
from orchestrator.farm.submit.submission import Submission
from orchestrator.manifest.campaign import Written
from orchestrator.manifest.load import parse_manifest
from orchestrator.results.records import ModelOrigin
from orchestrator.sources.content import origins_of, without_credentials
from orchestrator.sources.zoo import zoo_models
from tests.orchestrator.asked import CPU, POCL, asked, model_files
from tests.orchestrator.cli.models import unary_model
from tests.orchestrator.stocked import report_devices

HELLO = AgentHello(agent_id="embedded", host="h", version="0", devices=(CPU, POCL))
FILE = """\
version: 1
campaign: kept
# From https://{user}host.example/m.tflite{query}, with thanks.
delegates: {{cpu: {{kind: cpu}}}}
models:
  - {{id: m, source: ./m.tflite}}
  - {{id: other, source: m2.tflite}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a farm whose campaigns wait, and two models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FARM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(PresentDevices, "hello", lambda *_, **__: HELLO)
    monkeypatch.setattr(Running, "run", lambda *_: None)
    for name in ("m.tflite", "m2.tflite"):
        (tmp_path / name).write_bytes(unary_model())
    return tmp_path


def test_the_file_is_shown_as_it_was_submitted_without_credentials(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "models.yaml").write_text(FILE.format(user="me:secret@", query="?sig=abc&x=1"))
    cli.run(["submit", "models.yaml", "--only", "m"])
    capsys.readouterr()
    assert cli.run(["show", "kept", "--manifest"]) == 0
    assert capsys.readouterr().out == FILE.format(user="", query="?removed")
    assert cli.run(["show", "kept", "--manifest", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["file"] == "models.yaml"
    assert found["chosen"] == {"delegates": [], "models": ["m"], "devices": [], "level": None}
    assert found["models"] == [{"id": "m", "source": "./m.tflite", "licence": None}]


def test_models_of_the_command_line_have_the_file_that_asks_for_the_same(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.run(["submit", str(folder / "m.tflite"), "--delegate", "cpu"])
    capsys.readouterr()
    cli.run(["show", "m", "--manifest"])
    same = parse_manifest(capsys.readouterr().out.encode(), "shown")
    assert [(entry.id, entry.source) for entry in same.models] == [("m", "./m.tflite")]
    with Farm.open(FarmHome(folder / "home")) as farm:
        kept = farm.reading.manifest("m")
    assert kept is not None
    assert kept.origins == {"m": ModelOrigin("./m.tflite", None)}


def test_a_file_goes_with_its_campaign(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PresentDevices, "hello", lambda *_, **__: HELLO)
    report_devices(database)
    submissions = Submission(database, PresentDevices.__new__(PresentDevices))
    written = replace(asked(name="with"), written=Written("version: 1\n", "a.yaml", devices=("pocl",)))
    stored = submissions.submit(submissions.plan(written, model_files("m")))
    bare = submissions.submit(submissions.plan(asked(name="without"), model_files("m")))
    with database.read() as session:
        kept = manifest(session, stored.campaign_id)
        assert kept is not None
        assert (kept.document, kept.chosen["devices"]) == ("version: 1\n", ["pocl"])
        assert manifest(session, bare.campaign_id) is None
    with database.write() as turn:
        number = turn.exec(select(tables.Manifest.campaign_no)).one()
        turn.get_one(tables.Campaign, number).ended_at = datetime.now(UTC)
        assert forget(turn, number)
    with database.read() as session:
        assert session.exec(select(tables.Manifest)).all() == []


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("https://host/a.tflite", "https://host/a.tflite"),
        ("https://u:p@host/a.tflite?token=t#part", "https://host/a.tflite?removed#part"),
        ("{source: 'https://host/a?k=v'}", "{source: 'https://host/a?removed'}"),
        ("[https://host/a?k=v, pypi:a==1!b?c]", "[https://host/a?removed, pypi:a==1!b?c]"),
        ("npm:@scope/name@1.0!model.tflite", "npm:@scope/name@1.0!model.tflite"),
    ],
)
def test_addresses_lose_what_opens_them(written: str, kept: str) -> None:
    assert without_credentials(written) == kept


def test_a_licence_is_known_by_the_file_whatever_its_source() -> None:
    known = next(iter(zoo_models().values()))
    found = origins_of(asked(("copy", "mine")), {"copy": known.sha256, "mine": "0" * 64})
    assert found == {
        "copy": ModelOrigin("./copy.tflite", known.licence),
        "mine": ModelOrigin("./mine.tflite", None),
    }
