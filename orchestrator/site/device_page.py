"""Builds the page of a device: its noise and environments, what ran there, and what did not."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from types import SimpleNamespace as View
from typing import Any

from agent.wire.messages import environment_id
from agent.wire.provenance import conditions_of, versions_of
from orchestrator.results.records import ComparedCell
from orchestrator.site.failures_page import causes_of, failures_page
from orchestrator.site.figures import differences
from orchestrator.site.series import Series


def devices_of(cells: Iterable[ComparedCell]) -> list[View]:
    """Return the devices on which a campaign has results, with the environments of each."""
    found: dict[str, list[ComparedCell]] = {}
    for cell in cells:
        if cell.environment:
            found.setdefault(cell.device, []).append(cell)
    return [_device(device, own) for device, own in found.items()]


def _device(device: str, cells: Sequence[ComparedCell]) -> View:
    groups: dict[str, list[ComparedCell]] = {}
    for cell in cells:
        groups.setdefault(environment_id(dict(cell.environment)), []).append(cell)
    noise = cells[0].noise
    return View(
        device=device,
        name=cells[0].device_name,
        imported=cells[0].imported is not None,
        noise=None
        if noise is None
        else View(
            text=noise.text, sessions=noise.sessions, delegate=noise.delegate, measured_at=noise.measured_at
        ),
        environments=[_environment(name, own) for name, own in groups.items()],
    )


def _environment(name: str, cells: Sequence[ComparedCell]) -> View:
    ends = [one.finished_at for one in cells if one.finished_at]
    return View(
        name=name,
        fields=sorted(cells[0].environment.items()),
        kinds=sorted({one.delegate_kind for one in cells}),
        delegates=sorted({one.delegate for one in cells}),
        count=len(cells),
        since=min(ends, default=None),
        until=max(ends, default=None),
    )


def on_devices(own: Iterable[Series]) -> list[View]:
    """Return the devices of a model's series: the delegate of each series, and whether it has a result."""
    return [View(device=one.key[4], delegate=one.key[2], has_result=one.has_result) for one in own]


def device_page(device: str, campaigns: Sequence[View], models: Sequence[View]) -> dict[str, Any]:
    """Gather the page of a device: of what each campaign has on it, the newest first, and of all models."""
    by_model = [[one for one in model.devices if one.device == device] for model in models]
    own = [one for found in by_model for one in found]
    newest = campaigns[0]
    return {
        "device": device,
        "name": newest.name,
        "noise": newest.noise
        and View(**vars(newest.noise) | {"measured_at": datetime.fromisoformat(newest.noise.measured_at)}),
        "imported": newest.imported,
        "environments": _environments([one for found in campaigns for one in found.environments]),
        "models": sum(map(bool, by_model)),
        "results": sum(one.has_result for one in own),
        "failed": sum(not one.has_result for one in own),
        "delegates": sorted(Counter(one.delegate for one in own).items()),
        "causes": failures_page(
            causes_of(one for model in models for one in model.failures if one.device == device)
        )["causes"],
    }


def _environments(found: Iterable[View]) -> list[View]:
    """Return the environments, newest first, each with what differs from the one before it in time.

    Delegates have versions of their own: two environments are compared where one of them ran in both.
    """
    groups: dict[str, list[View]] = {}
    for one in found:
        groups.setdefault(one.name, []).append(one)
    members = list(groups.values())
    views = []
    for place, own in enumerate(members):
        kinds, new = {kind for one in own for kind in one.kinds}, dict(own[0].fields)
        # Campaigns come newest first: what is later in the list is earlier in time.
        later = (one for many in members[place + 1 :] for one in many if not kinds.isdisjoint(one.kinds))
        older = next((dict(one.fields) for one in later), new)
        ends = [datetime.fromisoformat(at) for one in own for at in (one.since, one.until) if at]
        views.append(
            View(
                name=own[0].name,
                conditions=conditions_of(new),
                versions=versions_of(new),
                count=sum(one.count for one in own),
                delegates=sorted({delegate for one in own for delegate in one.delegates}),
                since=min(ends, default=None),
                until=max(ends, default=None),
                changes=differences(older, new),
            )
        )
    return views
