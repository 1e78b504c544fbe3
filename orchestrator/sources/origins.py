"""Says where a campaign's models come from and under which licence, without credentials."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orchestrator.errors import FarmError
from orchestrator.manifest.campaign import Campaign, ModelEntry
from orchestrator.results.records import ModelOrigin
from orchestrator.sources.zoo import zoo_models

_USER: Final = re.compile(r"(?<=://)[^/\s'\"?#@]*@")
_QUERY: Final = re.compile(r"(://[^\s'\"?#]*\?)[^\s'\"#,}\]]+")


def without_credentials(text: str) -> str:
    """Remove the users, passwords and queries of a text's addresses; a query may hold a signature."""
    return _QUERY.sub(r"\1removed", _USER.sub("", text))


def origins_of(campaign: Campaign, files: Mapping[str, str]) -> dict[str, ModelOrigin]:
    """Return the origin of each model by its id. `files`: the sha256 of each model's file, as far as it is
    known.
    """
    licences = _licences()
    return {
        entry.id: ModelOrigin(_source(entry), licences.get(files.get(entry.id, "")))
        for entry in campaign.models
    }


def _source(entry: ModelEntry) -> str:
    """Return the source as the user wrote it; a file of the command line as a campaign file would name it."""
    if entry.place is None:
        return f"./{Path(entry.source).name}"
    return without_credentials(entry.source)


def _licences() -> Mapping[str, str]:
    """Return the licence of every file that the zoo knows, by sha256."""
    try:
        return {model.sha256: model.licence for model in zoo_models().values()}
    except FarmError:
        return {}
