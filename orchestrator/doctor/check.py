"""The unit of the reports of `farm doctor` and `farm db check`, and the checks that every agent needs: of the
sandbox of its runners, and of the devices that hang on its host.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from agent.wire import messages


@dataclass(frozen=True, slots=True)
class Check:
    """The finding about one part of the farm. `fix` is empty where `ok`."""

    name: str
    ok: bool
    found: str
    fix: str = ""


_ON_FIX = "start the agent without FARM_RUNNER_SANDBOX=off"
_ATTACHED: Final = ("ssh", "adb")
"""The `api` of devices that hang on a host. A silent one is missing as `API:NAME`."""

_KERNEL_FIX = "see docs/security.md for what each needs; until then, measure only models that you trust"


def sandbox_checks(devices: Iterable[messages.Device]) -> list[Check]:
    """One check for all devices with a whole sandbox, and one for each way in which others lack it.

    A runner that sees processes and cannot touch them is said, and is no fault: no ordinary user's is better.
    """
    whole: dict[str, str] = {}
    lacking: dict[str, list[str]] = {}
    for device in devices:
        said = device.facts.get(messages.SANDBOX_FACT, "")
        without = device.facts.get(messages.SANDBOX_WITHOUT_FACT, "")
        if said.startswith(messages.SANDBOX_OFF):
            lacking.setdefault(said, []).append(device.device_id)
        elif without == messages.SANDBOX_SEES_PROCESSES:
            whole[f"{said}; without {without}"] = device.device_id
        elif without:
            lacking.setdefault(f"without {without}", []).append(device.device_id)
        elif said:
            whole[said] = device.device_id
    checks = [
        Check(
            "sandbox",
            False,
            f"{', '.join(ids)}: {text}",
            _ON_FIX if text.startswith(messages.SANDBOX_OFF) else _KERNEL_FIX,
        )
        for text, ids in lacking.items()
    ]
    return checks or [Check("sandbox", True, text) for text in whole]


def attached_checks(report: messages.AgentHello) -> list[Check]:
    """One check for all devices that hang on the hosts of agents, and one for each that did not answer."""
    found = [f"{one.device_id}: {one.name}, over {one.api}" for one in report.devices if one.api in _ATTACHED]
    # Interface, colon, name and reason. What has no colon is a delegate that is missing, and no device.
    silent = [(*one.kind.partition(":"), one.reason) for one in report.missing]
    return [Check("attached", True, "; ".join(found))] * bool(found) + [
        Check(
            "attached",
            False,
            f"{name}: {why}",
            f"see that {api} reaches it from the agent's machine (docs/lab.md), and start the agent anew",
        )
        for api, colon, name, why in silent
        if colon and api in _ATTACHED
    ]
