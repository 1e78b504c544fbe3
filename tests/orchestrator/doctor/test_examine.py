from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from agent.wire.messages import (
    CONFORMANCE_FACT,
    FIRST_KERNEL_FACT,
    IN_THE_WAY_FACT,
    NARROW_NUMBERS_FACT,
    AgentHello,
    MissingDelegate,
)
from orchestrator.config.home import FarmHome
from orchestrator.db.devices import states
from orchestrator.doctor import examine as examination
from orchestrator.doctor.examine import examine
from orchestrator.errors import UnreachableError
from tests.orchestrator.asked import CPU, GPU, POCL
from tests.orchestrator.stocked import stock


def hello(*present, missing=()):
    return AgentHello(agent_id="a", host="h", version="0", devices=present, missing=missing)


@pytest.fixture
def look(database):
    """Return the checks by name, for an agent's report."""

    def examined(said):
        home = FarmHome(database.path.parent)
        return {check.name: check for check in examine(home, database, said)}

    return examined


def test_a_well_farm_has_only_good_checks(look):
    checks = look(lambda: hello(CPU, POCL))
    assert [check.name for check in checks.values() if not check.ok] == []
    assert not any(check.fix for check in checks.values())
    assert checks["scheduler"].found.startswith("not running")


def test_a_gpu_that_cuda_alone_reaches_lacks_no_other_driver(look):
    found = look(lambda: hello(CPU, GPU.model_copy(update={"api": "cuda"})))
    assert found["cuda"].ok
    assert "opencl" not in found


def test_a_missing_opencl_platform_comes_with_the_way_to_get_one(look):
    said = hello(CPU, missing=(MissingDelegate(kind="gpu", reason="no OpenCL platform found"),))
    check = look(lambda: said)["opencl"]
    assert (check.ok, check.found) == (False, "no OpenCL platform found")
    assert "pocl-opencl-icd" in check.fix


def test_the_time_that_a_driver_took_for_its_first_kernel_is_told(look):
    slow = POCL.model_copy(update={"facts": {**POCL.facts, FIRST_KERNEL_FACT: "11.42"}})
    assert "(its first kernel took 11.42 s)" in look(lambda: hello(CPU, slow))["opencl"].found


def test_what_a_device_does_with_narrow_numbers_and_what_a_check_found_is_told(look):
    facts = {**POCL.facts, NARROW_NUMBERS_FACT: "fp16 storage", CONFORMANCE_FACT: "9 operators agree"}
    probed = POCL.model_copy(update={"facts": facts})
    assert "(it has fp16 storage; 9 operators agree)" in look(lambda: hello(CPU, probed))["opencl"].found


def test_what_lies_between_programs_and_a_driver_is_told(look):
    facts = {**POCL.facts, IN_THE_WAY_FACT: "OPENCL_LAYERS=/opt/trace.so"}
    found = look(lambda: hello(CPU, POCL.model_copy(update={"facts": facts})))["opencl"].found
    assert "(in front of its driver: OPENCL_LAYERS=/opt/trace.so)" in found


def test_devices_that_hang_on_the_host_are_listed_and_a_silent_one_is_a_fault(look):
    board = CPU.model_copy(update={"device_id": "board", "api": "ssh", "name": "Cortex-A76"})
    silent = MissingDelegate(kind="adb:phone", reason="device 'R5' not found")
    found = look(lambda: hello(CPU, POCL, board))["attached"]
    assert (found.ok, found.found) == (True, "board: Cortex-A76, over ssh")
    found = look(lambda: hello(CPU, POCL, missing=(silent,)))["attached"]
    assert (found.ok, found.found) == (False, "phone: device 'R5' not found")
    assert "see that adb reaches it" in found.fix


def test_an_agent_that_cannot_be_had_is_a_bad_check_and_not_a_traceback(look):
    def broken():
        raise UnreachableError("the embedded agent ended 5 times")

    assert look(broken)["agent"].found == "the embedded agent ended 5 times"


def test_a_full_disk_is_named(look, monkeypatch):
    monkeypatch.setattr(examination, "MIN_FREE_BYTES", 2**70)
    check = look(lambda: hello(CPU))["disk"]
    assert not check.ok
    assert "free at least" in check.fix


def test_a_damaged_database_is_named(look, database):
    database.close()
    size = database.path.stat().st_size
    with database.path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    check = look(lambda: hello(CPU))["database"]
    assert not check.ok
    assert "backup" in check.fix


def test_a_reserved_device_is_named_with_its_holder_until_the_end(look, database):
    stock(database)
    until = datetime.now(UTC) + timedelta(hours=1)
    with database.write() as turn:
        states.reserve(turn, turn.device("pocl-0"), "ana", until, "new driver", datetime.now(UTC))
    check = look(lambda: hello(CPU, POCL))["reserved"]
    assert (check.ok, check.found) == (True, f"pocl-0 by ana until {until:%Y-%m-%d %H:%M} UTC (new driver)")
