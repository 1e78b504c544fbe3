"""Narrows a campaign to some of its models and delegates."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from orchestrator.errors import UsageError
from orchestrator.manifest.campaign import Campaign, DelegateEntry
from orchestrator.manifest.problems import suggestion


def narrow(campaign: Campaign, delegates: Sequence[str] = (), only: str = "*") -> Campaign:
    """The campaign with the chosen delegates and the models whose id matches the glob.

    A delegate is chosen by its name, by a glob over names, or by its kind, which may have several names. A
    baseline that is not chosen is dropped. Raises `UsageError` where nothing is left.
    """
    wanted = {entry.name for word in delegates for entry in _called(word, campaign.delegates)}
    models = tuple(entry for entry in campaign.models if fnmatchcase(entry.id, only))
    if not models:
        ids = [entry.id for entry in campaign.models]
        raise UsageError(f"no model of this campaign matches {only!r}{suggestion(only, ids)}")
    chosen = tuple(entry for entry in campaign.delegates if not delegates or entry.name in wanted)
    if (models, chosen) == (campaign.models, campaign.delegates):
        return campaign
    kept = {entry.name for entry in chosen}
    # Its digest differs from the whole file's: a part is another submission and must not be taken for it.
    identity = "\n".join((campaign.manifest_sha256, *sorted(kept), "", *(entry.id for entry in models)))
    return replace(
        campaign,
        models=models,
        delegates=chosen,
        baseline_delegate=campaign.baseline_delegate if campaign.baseline_delegate in kept else None,
        manifest_sha256=hashlib.sha256(identity.encode()).hexdigest(),
    )


def _called(word: str, entries: Sequence[DelegateEntry]) -> list[DelegateEntry]:
    """The delegates that a word names: by an exact name, else by a glob, else by kind."""
    ways = (
        [entry for entry in entries if entry.name == word],
        [entry for entry in entries if fnmatchcase(entry.name, word)],
        [entry for entry in entries if entry.kind == word],
    )
    found = next(filter(None, ways), None)
    if found is None:
        names = [entry.name for entry in entries]
        raise UsageError(f"no delegate of this campaign is called {word!r}{suggestion(word, names)}")
    return found
