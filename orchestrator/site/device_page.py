"""Builds the page of a device: how far equal things differ there, its environments, and what ran on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace as View
from typing import Any

from agent.wire.messages import environment_id
from orchestrator.results.records import ComparedCell
from orchestrator.site.archive import Archive, utc
from orchestrator.site.series import Series


def devices_of(archive: Archive) -> dict[str, list[ComparedCell]]:
    """Return the cells with a result of each device, newest campaign first."""
    found: dict[str, list[ComparedCell]] = {}
    for cell in archive.by_id.values():
        if cell.environment:
            found.setdefault(cell.device, []).append(cell)
    return found


def device_page(
    device: str, cells: Sequence[ComparedCell], history: Mapping[str, Sequence[Series]]
) -> dict[str, Any]:
    """Gather the page of a device."""
    own = [one for many in history.values() for one in many if one.key[4] == device]
    return {
        "device": device,
        "name": cells[0].device_name,
        "noise": cells[0].noise,
        "imported": cells[0].imported,
        "environments": _environments(cells),
        "models": len({one.key[0] for one in own}),
        "results": sum(one.has_result for one in own),
        "failed": sum(not one.has_result for one in own),
        "delegates": sorted(Counter(one.key[2] for one in own).items()),
    }


def _environments(cells: Iterable[ComparedCell]) -> list[View]:
    """Return the environments, newest first, each with what differs from the one before it in time.

    Delegates have versions of their own: two environments are compared where one of them ran in both.
    """
    groups: dict[str, list[ComparedCell]] = {}
    for cell in cells:
        groups.setdefault(environment_id(dict(cell.environment)), []).append(cell)
    found = list(groups.items())
    views = []
    for place, (name, members) in enumerate(found):
        kinds, new = {one.delegate_kind for one in members}, members[0].environment
        later = (one for _, many in found[place + 1 :] for one in many if one.delegate_kind in kinds)
        older = next((one.environment for one in later), new)
        ends = [at for one in members if (at := utc(one.finished_at))]
        views.append(
            View(
                name=name,
                first=members[0],
                count=len(members),
                delegates=sorted({one.delegate for one in members}),
                since=min(ends, default=None),
                until=max(ends, default=None),
                changes=[
                    (field, f"{older.get(field, 'absent')} → {new.get(field, 'absent')}")
                    for field in sorted({*older, *new})
                    if older.get(field) != new.get(field)
                ],
            )
        )
    return views
