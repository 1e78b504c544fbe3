"""Checks what the sandbox of the agents' runners holds back."""

from __future__ import annotations

from collections.abc import Iterable

from agent.wire.messages import SANDBOX_FACT, SANDBOX_OFF, SANDBOX_WITHOUT_FACT, Device
from orchestrator.doctor.check import Check

_ON_FIX = "start the agent without FARM_RUNNER_SANDBOX=off"
_KERNEL_FIX = "see docs/security.md for what each needs; until then, measure only models that you trust"


def sandbox_checks(devices: Iterable[Device]) -> list[Check]:
    """One check for all devices with a whole sandbox, and one for each way in which others lack it."""
    whole: dict[str, str] = {}
    lacking: dict[str, list[str]] = {}
    for device in devices:
        said = device.facts.get(SANDBOX_FACT, "")
        without = device.facts.get(SANDBOX_WITHOUT_FACT, "")
        if said.startswith(SANDBOX_OFF):
            lacking.setdefault(said, []).append(device.device_id)
        elif without:
            lacking.setdefault(f"without {without}", []).append(device.device_id)
        elif said:
            whole[said] = device.device_id
    checks = [
        Check(
            "sandbox",
            False,
            f"{', '.join(ids)}: {text}",
            _ON_FIX if text.startswith(SANDBOX_OFF) else _KERNEL_FIX,
        )
        for text, ids in lacking.items()
    ]
    return checks or [Check("sandbox", True, text) for text in whole]
