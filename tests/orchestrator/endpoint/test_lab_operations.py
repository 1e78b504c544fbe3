"""Operators change a lab of real processes: devices out and back, agents drained and removed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.orchestrator.cli.models import unary_model
from tests.orchestrator.endpoint.http_lab import HttpLab

CPU = "rack-1.host-cpu"
CAMPAIGN = """\
version: 1
campaign: line
defaults:
  measure:
    warmup: {runs: 1, min_seconds: 0}
    blocks: 1
    rounds: 3
    slice: {seconds: 2}
models:
  - {id: first, source: 0.tflite}
  - {id: second, source: 1.tflite}
  - {id: third, source: 2.tflite}
delegates:
  cpu: {kind: cpu, threads: 1}
devices:
  - {name: "*host-cpu"}
"""


pytestmark = pytest.mark.conformance


def farm(lab: HttpLab, *arguments: str) -> Any:
    ran = lab.run("farm", *arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def device(lab: HttpLab) -> str:
    return next(entry["state"] for entry in farm(lab, "devices")["devices"] if entry["device_id"] == CPU)


def statuses(lab: HttpLab) -> list[str]:
    return [cell["status"] for cell in farm(lab, "status", "line")["cells"]]


def submitted(lab: HttpLab) -> Any:
    """Submit a campaign whose first cell runs and whose other two wait; return the process that watches
    it.
    """
    for number in range(3):
        (lab.folder / f"{number}.tflite").write_bytes(unary_model(size=(1 << 18) + number))
    (lab.folder / "models.yaml").write_text(CAMPAIGN)
    watching = lab.service("submit", lab.environment, "farm", "submit", str(lab.folder / "models.yaml"))
    lab.serve.until(lambda: farm(lab, "status")["cells"]["running"] == 1, "the first cell")
    return watching


def test_a_device_taken_out_by_hand_stays_out_and_a_health_check_requalifies_one(lab: HttpLab) -> None:
    farm(lab, "devices", "quarantine", CPU, "--reason", "loud fan", "--check")
    assert device(lab) == "quarantined"
    lab.serve.until(lambda: device(lab) == "idle", "a health check passed on the real device")
    assert farm(lab, "status")["campaigns"] == [], "the check is the farm's own affair"

    farm(lab, "devices", "quarantine", CPU)
    for number in range(3):
        (lab.folder / f"{number}.tflite").write_bytes(unary_model(size=64 + number))
    (lab.folder / "models.yaml").write_text(CAMPAIGN.replace("seconds: 2", "seconds: 0"))
    watching = lab.service("submit", lab.environment, "farm", "submit", str(lab.folder / "models.yaml"))
    lab.serve.until(lambda: bool(farm(lab, "status")["campaigns"]), "the campaign is stored")
    cell = farm(lab, "status", "line")["cells"][0]["cell"]
    assert any(
        "in quarantine (by hand); back with" in text for text in farm(lab, "show", "--why", cell)["blocks"]
    )
    assert statuses(lab) == ["queued"] * 3
    farm(lab, "devices", "release", CPU)
    assert watching.end() == 0
    assert statuses(lab) == ["done"] * 3


def test_cells_that_only_a_drained_agent_could_run_have_no_device_and_say_so(lab: HttpLab) -> None:
    watching = submitted(lab)
    drained = farm(lab, "lab", "agents", "drain", "rack-1")
    assert drained == {"agent": "rack-1", "state": "draining", "no_device": 2}
    assert watching.end() == 0, "unsupported is no failure"
    assert statuses(lab) == ["done", "unsupported", "unsupported"]
    cell = farm(lab, "status", "line")["cells"][1]
    assert cell["reason"]["code"] == "no_device"
    assert "agent rack-1 is being drained" in cell["reason"]["text"]
    assert lab.agent.running

    farm(lab, "lab", "agents", "drain", "rack-1", "--undo")
    assert farm(lab, "retry", "line")["retried"] == 2
    lab.serve.until(lambda: statuses(lab) == ["done"] * 3, "the two were measured after all")


def test_what_runs_on_a_removed_agent_is_returned_and_the_agent_ends(lab: HttpLab) -> None:
    watching = submitted(lab)
    assert farm(lab, "lab", "agents", "remove", "rack-1")["no_device"] == 2
    assert watching.end() == 0
    assert statuses(lab) == ["unsupported"] * 3
    cell = farm(lab, "status", "line")["cells"][0]
    assert "rack-1" in cell["reason"]["text"]
    lab.serve.until(lambda: not lab.agent.running, "the agent was told to end")
    assert lab.agent.end() == 0


def test_a_server_that_was_stopped_is_seen_at_once(lab: HttpLab) -> None:
    assert farm(lab, "status")["scheduler"]["running"] is True
    assert lab.serve.stop() == 0
    scheduler = farm(lab, "status")["scheduler"]
    assert scheduler["running"] is False
    assert "was stopped; start it: farm lab serve" in scheduler["state"]
    looked = json.loads(lab.run("farm", "doctor", "--json").stdout)["checks"]
    assert {check["name"] for check in looked if not check["ok"]} == {"endpoint", "scheduler"}
