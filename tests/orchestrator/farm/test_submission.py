"""A submission is planned once: what is shown is what is stored, whatever happens in between."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import delete

from agent.wire.messages import AgentHello
from orchestrator import cli
from orchestrator.config.home import FarmHome
from orchestrator.db import tables
from orchestrator.db.engine.sessions import Database
from orchestrator.db.scheduling import ingest
from orchestrator.errors import FarmError, UsageError
from orchestrator.farm import Farm
from orchestrator.farm.again.steering import Steering
from orchestrator.farm.local.one_machine import PresentDevices
from orchestrator.farm.submit import submission
from orchestrator.farm.submit.running import Running
from orchestrator.farm.submit.submission import Submission
from orchestrator.manifest.campaign import CellRule
from tests.orchestrator.asked import CPU, POCL, asked, model_files
from tests.orchestrator.cli.models import unary_model
from tests.orchestrator.stocked import cells, dispatch, report_devices, result

NOW = datetime.now(UTC)
HELLO = AgentHello(agent_id="embedded", host="h", version="0", devices=(CPU, POCL))


def calls(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[tuple[Any, Any]]:
    """From now on, the last argument and the answer of every call of a function or method."""
    function, made = getattr(owner, name), []

    def recorded(*arguments: Any, **named: Any) -> Any:
        made.append((arguments[-1], function(*arguments, **named)))
        return made[-1][1]

    monkeypatch.setattr(owner, name, recorded)
    return made


@pytest.fixture
def submissions(database: Database, monkeypatch: pytest.MonkeyPatch) -> Submission:
    """Submissions to a farm whose one agent has a CPU and PoCL."""
    monkeypatch.setattr(PresentDevices, "hello", lambda *_, **__: HELLO)
    report_devices(database)
    return Submission(database, PresentDevices.__new__(PresentDevices))


def finish(database: Database) -> None:
    """Measure every waiting cell."""
    for cell in cells(database):
        if cell.state == "queued":
            job = dispatch(database, cell.cell_id)
            with database.write() as session:
                assert ingest.apply(session, result(job, environment=CPU.environment), NOW) == "counted"


def test_what_farm_submit_shows_is_the_object_that_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.tflite").write_bytes(unary_model())
    np.savez(tmp_path / "data.npz", labels=np.arange(3), inputs=np.zeros((3, 4096), np.float32))
    pins = {name: sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("m.tflite", "data.npz")}
    (tmp_path / "models.yaml").write_text(
        "version: 1\ncampaign: c\ndelegates: {cpu: {kind: cpu}}\nmodels:\n"
        f"  - id: m\n    source: m.tflite\n    sha256: {pins['m.tflite']}\n"
        f"    accuracy: {{dataset: data.npz, sha256: {pins['data.npz']}, metric: top1}}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FARM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(PresentDevices, "hello", lambda *_, **__: HELLO)
    monkeypatch.setattr(Running, "run", lambda *_: None)
    checked = calls(monkeypatch, import_module("orchestrator.sources.files"), "check_file")
    shown = calls(monkeypatch, import_module("orchestrator.cli.submit"), "_summary")
    expanded = calls(monkeypatch, submission, "expand")
    decided = calls(monkeypatch, submission, "plan_cells")
    planned = calls(monkeypatch, Submission, "plan")
    stored = calls(monkeypatch, Submission, "submit")
    cli.run(["submit", "models.yaml"])
    assert "1 cell: 1 to run" in capsys.readouterr().err
    assert (len(planned), len(expanded), len(decided)) == (1, 1, 1)
    ((plan, _),), ((cells_shown, _),), ((_, made),) = stored, shown, planned
    assert plan is made
    assert plan.preview == cells_shown
    assert len(checked) == 2, "each file once"
    with Farm.open(FarmHome(tmp_path / "home")) as farm:
        (cell,) = farm.reading.cells()
    assert (cell.model, cell.status) == ("m", "queued")


def test_a_result_that_arrived_meanwhile_leaves_the_plan_as_it_was_shown(
    submissions: Submission, database: Database
) -> None:
    plan = submissions.plan(asked(name="late"), model_files("m"))
    submissions.submit(submissions.plan(asked(name="early"), model_files("m")))
    finish(database)
    assert submissions.plan(asked(name="late"), model_files("m")).cells[0].action == "reuse"
    submissions.submit(plan)
    assert [cell.state for cell in cells(database)] == ["done", "queued"]


def test_where_a_result_to_be_reused_was_deleted_meanwhile_nothing_is_stored(
    submissions: Submission, database: Database
) -> None:
    submissions.submit(submissions.plan(asked(name="early"), model_files("m")))
    finish(database)
    plan = submissions.plan(asked(name="late"), model_files("m"))
    with database.write() as session:
        session.connection().execute(delete(tables.Result))
    with pytest.raises(FarmError, match=r"1 of the results that campaign 'late' was to reuse.*submit it"):
        submissions.submit(plan)
    assert len(cells(database)) == 1


@pytest.mark.parametrize("way", ["drain_agent", "remove_agent"])
def test_a_cell_whose_agent_left_meanwhile_ends_without_a_device(
    submissions: Submission, database: Database, way: str
) -> None:
    plan = submissions.plan(asked(), model_files("m"))
    assert getattr(Steering(database), way)("embedded") == 0
    submissions.submit(plan)
    (cell,) = cells(database)
    assert (cell.state, cell.reason_code) == ("unsupported", "no_device")
    assert cell.reason_text == "device host-cpu is gone: its agent left while the campaign was submitted"


def test_the_same_content_continues_the_unfinished_campaign(
    submissions: Submission, database: Database
) -> None:
    first = submissions.submit(submissions.plan(asked(), model_files("m")))
    again = submissions.submit(submissions.plan(asked(), model_files("m")))
    assert again.campaign_id == first.campaign_id
    assert len(cells(database)) == 1


def test_a_campaign_without_a_cell_is_refused(submissions: Submission, database: Database) -> None:
    rule = CellRule()
    plan = submissions.plan(asked(exclude=(rule,)), model_files("m"))
    with pytest.raises(UsageError, match="campaign 'test' has no cell: its rules exclude all 1"):
        submissions.submit(plan)
    assert cells(database) == []
