"""`farm devices noise` on this machine: a real A/A series, from the command to what is shown of it."""

from __future__ import annotations

import functools
import json

import pytest

from agent.wire.plan import MeasurePlan
from orchestrator.cli.devices import Action, devices
from orchestrator.results import noise as series

BRIEF = MeasurePlan(
    min_blocks=3, max_blocks=3, warmup_runs=1, warmup_seconds=0.0, rounds=3, slice_runs=5, slice_seconds=0.0
)


@pytest.mark.exhaustive
def test_a_device_is_measured_against_itself_and_shows_its_noise(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FARM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(series, "noise_series", functools.partial(series.noise_series, plan=BRIEF))
    assert devices(Action.NOISE, "host-cpu", sessions=3, as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["device"] == "host-cpu"
    assert found["noise"]["sessions"] == 3
    assert found["noise"]["floor"] >= 0.0
    assert devices(Action.LIST, as_json=True) == 0
    listed = json.loads(capsys.readouterr().out)["devices"]
    (host,) = [device for device in listed if device["device_id"] == "host-cpu"]
    assert host["noise"] == found["noise"]
    assert devices(Action.LIST, as_json=False) == 0
    assert " (sessions " in capsys.readouterr().out
