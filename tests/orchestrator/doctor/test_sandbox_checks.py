"""`farm doctor` on the sandbox of runners."""

from __future__ import annotations

from agent.wire.messages import SANDBOX_SEES_PROCESSES
from orchestrator.doctor.check import sandbox_checks
from tests.orchestrator.asked import CPU, GPU, POCL


def with_facts(device, **facts):
    return device.model_copy(update={"facts": facts})


def test_a_whole_sandbox_is_one_good_check():
    (check,) = sandbox_checks(with_facts(device, sandbox="Landlock 7, seccomp") for device in (CPU, POCL))
    assert (check.ok, check.found) == (True, "Landlock 7, seccomp")


def test_a_sandbox_that_is_off_is_a_fault_with_the_way_to_switch_it_on():
    (check,) = sandbox_checks([with_facts(CPU, sandbox="off (FARM_RUNNER_SANDBOX=off): all is open")])
    assert not check.ok
    assert check.found.startswith("host-cpu: off")
    assert "FARM_RUNNER_SANDBOX" in check.fix


def test_each_lack_is_named_once_with_the_devices_that_have_it():
    lacking = {"sandbox": "seccomp", "sandbox_without": "closed files of others (no Landlock)"}
    found = [with_facts(CPU, **lacking), with_facts(POCL, **lacking), with_facts(GPU, sandbox="Landlock 7")]
    (check,) = sandbox_checks(found)
    assert not check.ok
    assert check.found == "host-cpu, pocl-0: without closed files of others (no Landlock)"


def test_what_no_ordinary_user_has_is_said_and_is_no_fault():
    facts = {"sandbox": "Landlock 7", "sandbox_without": SANDBOX_SEES_PROCESSES}
    (check,) = sandbox_checks([with_facts(CPU, **facts)])
    assert (check.ok, check.found) == (True, f"Landlock 7; without {SANDBOX_SEES_PROCESSES}")
    facts["sandbox_without"] += "; a limit on processes (root has none)"
    (check,) = sandbox_checks([with_facts(CPU, **facts)])
    assert not check.ok
