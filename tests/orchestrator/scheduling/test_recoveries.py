"""The operator's command for lost devices: when it runs, with what, how often, and what follows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlmodel import select

from agent.wire.messages import AgentHello
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig, LabTimes
from orchestrator.config.recovery import Recovery
from orchestrator.db import tables
from orchestrator.db.campaigns import steering_requests
from orchestrator.db.devices import quarantine
from orchestrator.db.devices.quarantine import RECOVERED_ONCE_IN, LostDevice
from orchestrator.db.engine.sessions import Database
from orchestrator.dispatch.base import MessageReceived
from orchestrator.errors import UsageError
from orchestrator.results.events import DeviceRecovered
from orchestrator.scheduling.loop import SchedulerLoop
from orchestrator.scheduling.recoveries import run
from tests.orchestrator.asked import GPU
from tests.orchestrator.scheduling.test_loop import MemoryBroker

GPUS = tuple(GPU.model_copy(update={"device_id": f"rack.gpu-{k}"}) for k in range(2))
HELLO = MessageReceived("rack", AgentHello(agent_id="rack", host="rack", version="0", devices=GPUS))
LOST = LostDevice("rack.gpu-0", "rack", "device_faults")
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def command(folder: Path, body: str, *fixed: str, limit_s: float = 60.0) -> Recovery:
    script = folder / "recover"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    return Recovery((str(script), *fixed), limit_s)


@pytest.fixture
def farm(database: Database) -> Iterator[Database]:
    """Return a farm that has heard of one agent with two devices."""
    broker = MemoryBroker(database)
    broker.arrived.append(HELLO)
    SchedulerLoop(database, broker, LabTimes()).listen(0.1)
    return database


def change(database: Database, table: type, key: str, **values: object) -> None:
    with database.write() as turn:
        turn.get_one(table, key).sqlmodel_update(values)


def device(database: Database, device_id: str = "rack.gpu-0") -> tables.Device:
    with database.read() as session:
        found = session.get_one(tables.Device, device_id)
        session.expunge(found)
        return found


def due(database: Database, now: datetime, silent_before: datetime | None = None) -> list[tuple[str, str]]:
    with database.read() as session:
        found = quarantine.lost(session, silent_before, now)
    return [(lost.device_id, lost.loss) for lost in found]


def test_the_machine_of_a_silent_agent_is_recovered_once_and_its_devices_must_pass_a_check(
    farm: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARM_BROKER_URL", "redis://:secret@host")
    said = tmp_path / "said"
    body = f'echo "$@" >> {said}; env >> {tmp_path}/environment; echo "switched $2"'
    recovery = command(tmp_path, body, "--site", "a b; touch /tmp/no")
    facts: list[object] = []
    farm.watchers.append(facts.append)
    times = LabTimes(lost_s=0.05, sweep_s=0.001, reaper_s=0.001)
    loop = SchedulerLoop(farm, MemoryBroker(farm), times, recovery=recovery)
    until = time.monotonic() + 60.0
    while device(farm, "rack.gpu-1").quarantined_at is None and time.monotonic() < until:
        loop.listen(0.02)
    for _ in range(5):
        loop.listen(0.02)
    assert said.read_text() == "--site a b; touch /tmp/no rack.gpu-0 rack agent_silent\n"
    assert "FARM_" not in (tmp_path / "environment").read_text()
    first, second = device(farm), device(farm, "rack.gpu-1")
    assert first.quarantine_text == second.quarantine_text
    assert "its recovery succeeded: exit code 0; switched a b" in str(first.quarantine_text)
    (entry,) = first.recoveries or ()
    assert (entry["loss"], entry["outcome"]) == ("agent_silent", "succeeded")
    assert second.recoveries is None
    assert facts == [DeviceRecovered("succeeded")]
    with farm.read() as session:
        checks = session.exec(select(tables.Cell.target).where(tables.Cell.state == "queued"))
        assert sorted(checks) == ["rack.gpu-0", "rack.gpu-1"]


@pytest.mark.parametrize(
    ("body", "outcome", "text"),
    [
        ("echo well; exit 0", "succeeded", "exit code 0; well"),
        ("echo one; echo no power >&2; exit 3", "failed", "exit code 3; no power"),
        ("exit 1", "failed", "exit code 1; it printed nothing"),
        (r"printf 'a\033[31mred\n'", "succeeded", "exit code 0; a [31mred"),
    ],
)
def test_an_outcome_comes_with_the_last_line(tmp_path: Path, body: str, outcome: str, text: str) -> None:
    assert run(command(tmp_path, body, limit_s=60.0), LOST) == (outcome, text)


def test_a_command_that_takes_too_long_is_ended_and_its_last_line_told(tmp_path: Path) -> None:
    body = "sleep 600 & echo waits; sleep 600"
    for limit_s in (0.3, 3.0, 30.0):  # within the first, a busy machine may not have begun it
        outcome, text = run(command(tmp_path, body, limit_s=limit_s), LOST)
        assert outcome == "timed_out"
        if text.endswith("waits"):
            break
    assert text == f"it took longer than {limit_s:g} s; waits"


def test_a_program_that_is_gone_is_an_outcome(tmp_path: Path) -> None:
    outcome, text = run(Recovery((str(tmp_path / "gone"),)), LOST)
    assert outcome == "failed"
    assert text == f"{tmp_path}/gone cannot be started: No such file or directory"


def test_the_farms_own_quarantine_is_a_loss_and_a_persons_is_not(farm: Database) -> None:
    assert due(farm, NOW) == []
    change(farm, tables.Device, "rack.gpu-0", quarantined_at=NOW, faulty_cells=["a", "b", "c"])
    change(farm, tables.Device, "rack.gpu-1", quarantined_at=NOW)
    assert due(farm, NOW) == [("rack.gpu-0", "device_faults")]
    with farm.write() as turn:
        steering_requests.quarantine(turn, "rack.gpu-0", "its fan is off", NOW + MINUTE)
    assert due(farm, NOW + 2 * MINUTE) == [], "who took it out may have it open"
    change(farm, tables.Device, "rack.gpu-0", faulty_cells=["a", "b", "c"])
    change(farm, tables.Agent, "rack", state=tables.AGENT_DRAINING)
    assert due(farm, NOW) == []
    assert due(farm, NOW, silent_before=NOW + 9999 * MINUTE) == [], "a drained machine may be switched off"


def test_a_device_is_recovered_once_for_each_loss_and_once_an_hour(farm: Database) -> None:
    change(farm, tables.Device, "rack.gpu-0", quarantined_at=NOW, faulty_cells=["a", "b", "c"])
    with farm.write() as turn:
        quarantine.begin(turn, LOST, NOW)
    assert due(farm, NOW + MINUTE) == [], "it runs, or the farm was killed while it ran"
    with farm.write() as turn:
        quarantine.end(turn, LOST, "succeeded", "exit code 0", NOW + MINUTE)
    assert due(farm, NOW + 2 * RECOVERED_ONCE_IN) == [], "the same loss"
    change(farm, tables.Device, "rack.gpu-0", quarantined_at=NOW + 5 * MINUTE)
    assert due(farm, NOW + 6 * MINUTE) == [], "lost again within the hour: it stays in quarantine"
    assert due(farm, NOW + RECOVERED_ONCE_IN + MINUTE) == [("rack.gpu-0", "device_faults")]


def test_a_farm_that_did_not_listen_calls_no_agent_silent(farm: Database, tmp_path: Path) -> None:
    change(farm, tables.Agent, "rack", heard_at=datetime.now(UTC) - timedelta(days=1))
    said = tmp_path / "said"
    times = LabTimes(lost_s=600.0, sweep_s=0.001, reaper_s=0.001)
    loop = SchedulerLoop(farm, MemoryBroker(farm), times, recovery=command(tmp_path, f"touch {said}"))
    for _ in range(5):
        loop.listen(0.02)
    assert not said.exists()
    assert device(farm).recoveries is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('command = "reboot"', "command must be a list of texts"),
        ('command = ["reboot"]', "'reboot' is not an absolute path"),
        ('command = ["/bin/true"]\nlimit_s = 0', "limit_s must be above 0"),
        ('command = ["/bin/true"]\nuser = "root"', "unknown key 'user'"),
        ("limit_s = 5", "command must be a list of texts"),
    ],
)
def test_a_mistake_in_the_settings_is_one_line(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "farm.toml").write_text(f"[recovery]\n{text}\n")
    with pytest.raises(UsageError, match=error):
        LabConfig.load(FarmHome(tmp_path), {})


def test_the_command_is_taken_from_the_file_and_must_be_safe_to_run(tmp_path: Path) -> None:
    made = command(tmp_path, "exit 0")
    (tmp_path / "farm.toml").write_text(f'[recovery]\ncommand = ["{made.command[0]}", "-v"]\nlimit_s = 9\n')
    found = LabConfig.load(FarmHome(tmp_path), {"FARM_RECOVERY": "/bin/sh"}).recovery
    assert found == Recovery((made.command[0], "-v"), 9.0)
    found.require_usable()
    Path(made.command[0]).chmod(0o775)
    with pytest.raises(UsageError, match=r"others may change .*chmod go-w"):
        found.require_usable()
    Path(made.command[0]).chmod(0o644)
    with pytest.raises(UsageError, match="no program that this user may run"):
        found.require_usable()
