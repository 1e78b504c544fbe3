"""Computes digests of what a measurement depends on: equal digests mean an equal experiment. Pure."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agent.wire.messages import Device, environment_id, environment_name
from agent.wire.plan import InputSpec, MeasurePlan


@dataclass(frozen=True, slots=True)
class ChangedField:
    """One difference between two measurements: `driver 550.90 → 560.28`."""

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name} {self.before} → {self.after}"


@dataclass(frozen=True)
class Ingredients:
    """Everything a measurement depends on besides the environment."""

    model_sha256: str
    delegate_kind: str
    delegate_options: Mapping[str, Any]
    device_id: str
    plan: MeasurePlan
    inputs: Mapping[str, InputSpec]

    @cached_property
    def series(self) -> str:
        """Digest: results of one series differ in environment and time only.

        Every count of the plan is in it, its target and its bounds of blocks, too: a result that was to be
        known less well, or better, is another one, and is measured anew.
        """
        return digest(
            {
                "model": self.model_sha256,
                "kind": self.delegate_kind,
                "options": dict(self.delegate_options),
                "device": self.device_id,
                "plan": self.plan.model_dump(mode="json"),
                "inputs": {name: spec.model_dump(mode="json") for name, spec in self.inputs.items()},
            }
        )


class Environments:
    """In which environment a delegate's results on each device are expected to be measured."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self._devices = {device.device_id: device for device in devices}
        self._ids: dict[tuple[str, str], str] = {}

    def of(self, device_id: str, kind: str, options: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the fields of the environment."""
        return self._devices[device_id].environment_of(kind, options)

    def id_of(self, device_id: str, kind: str, options: Mapping[str, Any]) -> str:
        """Return the environment's id."""
        known = self._devices[device_id].delegate_environments
        # Once for all cells of a delegate on a device, of which a campaign may have thousands.
        pair = device_id, environment_name(known, kind, options)
        if pair not in self._ids:
            self._ids[pair] = environment_id(dict(self.of(device_id, kind, options)))
        return self._ids[pair]


def fingerprint(series: str, environment_id: str) -> str:
    """Equal fingerprints mean that measuring again would repeat the experiment exactly.

    The digest of a series in one environment.
    """
    return digest({"series": series, "environment": environment_id})


def digest(value: Mapping[str, Any]) -> str:
    """Return the sha256 of canonical JSON (sorted keys, no blanks), as 64 hex digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def changed_fields(
    before: Ingredients,
    before_environment: Mapping[str, str],
    after: Ingredients,
    after_environment: Mapping[str, str],
) -> tuple[ChangedField, ...]:
    """Return the differences by the user's words: model, delegate options, plan, inputs, environment."""
    return (
        *_differences({"model": before.model_sha256[:12]}, {"model": after.model_sha256[:12]}),
        *_differences({"delegate": before.delegate_kind}, {"delegate": after.delegate_kind}),
        *_differences(before.delegate_options, after.delegate_options),
        *_differences(before.plan.model_dump(mode="json"), after.plan.model_dump(mode="json")),
        *_differences(_inputs(before), _inputs(after)),
        *_differences(before_environment, after_environment),
    )


def _inputs(ingredients: Ingredients) -> dict[str, str]:
    return {
        f"input {name}": json.dumps(spec.model_dump(mode="json", exclude_defaults=True))
        for name, spec in ingredients.inputs.items()
    }


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[ChangedField]:
    names = sorted(set(before) | set(after))
    return [
        ChangedField(name, _word(before.get(name)), _word(after.get(name)))
        for name in names
        if before.get(name) != after.get(name)
    ]


def _word(value: object) -> str:
    return "(none)" if value is None else str(value)
