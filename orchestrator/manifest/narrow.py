"""Narrows a campaign to some of its models, delegates and devices."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from orchestrator.errors import UsageError
from orchestrator.manifest.campaign import Campaign, DelegateEntry, DeviceSelector
from orchestrator.manifest.problems import suggestion


def narrow(
    campaign: Campaign, delegates: Sequence[str] = (), only: Sequence[str] = (), devices: Sequence[str] = ()
) -> Campaign:
    """Narrow a campaign to the chosen delegates, the models whose id matches one of the globs, and the
    devices whose id or name does, in place of those that the file selects.

    A delegate is chosen by its name, by a glob over names, or by its kind, which may have several names. A
    baseline that is not chosen is dropped. Raises `UsageError` for a word that fits nothing; whether a device
    fits is known only once the farm's devices are.
    """
    wanted = {entry.name for word in delegates for entry in _called(word, campaign.delegates)}
    ids = [entry.id for entry in campaign.models]
    for glob in only:
        if not any(fnmatchcase(name, glob) for name in ids):
            raise UsageError(f"no model of this campaign matches {glob!r}{suggestion(glob, ids)}")
    models = tuple(e for e in campaign.models if not only or any(fnmatchcase(e.id, glob) for glob in only))
    chosen = tuple(entry for entry in campaign.delegates if not delegates or entry.name in wanted)
    if (models, chosen) == (campaign.models, campaign.delegates) and not devices:
        return campaign
    kept = {entry.name for entry in chosen}
    # Its digest differs from the whole file's: a part is another submission and must not be taken for it.
    parts = (campaign.manifest_sha256, *sorted(kept), "", *(entry.id for entry in models))
    identity = "\n".join((*parts, "", *devices) if devices else parts)
    return replace(
        campaign,
        models=models,
        delegates=chosen,
        devices=tuple(DeviceSelector(name=glob) for glob in devices) or campaign.devices,
        baseline_delegate=campaign.baseline_delegate if campaign.baseline_delegate in kept else None,
        manifest_sha256=hashlib.sha256(identity.encode()).hexdigest(),
        written=campaign.written
        and replace(campaign.written, delegates=tuple(delegates), only=tuple(only), devices=tuple(devices)),
    )


def _called(word: str, entries: Sequence[DelegateEntry]) -> list[DelegateEntry]:
    """Return the delegates that a word names: by an exact name, else by a glob, else by kind."""
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
