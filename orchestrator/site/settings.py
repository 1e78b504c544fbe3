"""Turns the recorded settings of a measurement into rows; a setting may hold a JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping

from orchestrator.site.pages import Facts


def setting_rows(settings: Mapping[str, str]) -> Facts:
    """Sorted settings; one that holds a JSON object is shown field by field."""
    rows: list[tuple[str, str]] = []
    for name, value in sorted(settings.items()):
        fields = [(f"{name}: {key}", str(entry)) for key, entry in json_object(value).items()]
        rows += fields or [(name, value)]
    return tuple(rows)


def json_object(value: str) -> dict[str, object]:
    """The object that a text holds as JSON; empty for any other text."""
    try:
        loaded = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return loaded if isinstance(loaded, dict) else {}
