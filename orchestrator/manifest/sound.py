"""Keeps the readable part of a file with mistakes, so that its other mistakes are found in the same look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from orchestrator.manifest.readers import Placed

_REQUIRED = ("id", "source")


def sound(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a file without those that could not be read.

    A model without an id or a source is left out: nothing more can be said of it. So are labelled samples
    without their data set.
    """
    kept: dict[str, Any] = {"campaign": "", "models": [], "delegates": {}} | _kept(values)
    kept["models"] = [model for model in kept["models"] if all(key in model.value for key in _REQUIRED)]
    for model in kept["models"]:
        if "dataset" not in model.value.get("accuracy", {}):
            model.value.pop("accuracy", None)
    return kept


def is_whole(values: Mapping[str, Any], root: yaml.Node, key: str) -> bool:
    """Whether each entry of a list or mapping of the file is among the values.

    Where one is not, its name is unknown, and a reference to it is not a mistake of its own.
    """
    for name, node in root.value:
        if name.value == key and isinstance(node, yaml.CollectionNode):
            return len(values[key]) == len(node.value)
    return False


def _kept(value: Any) -> Any:
    if isinstance(value, Placed):
        return Placed(_kept(value.value), value.node)
    if isinstance(value, dict):
        return {key: _kept(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_kept(one) for one in value if one is not None]
    return value
