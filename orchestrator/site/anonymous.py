"""Reads a farm without names of users and hosts, and without local paths, for a site that is public."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from agent.wire.measurement import ProcessSamples
from orchestrator.policy.lifecycle import OPEN
from orchestrator.results.records import CampaignRecord, CellGroup, CellRecord, ComparedCell, ManifestRecord
from orchestrator.site.archive import SiteSource
from orchestrator.site.digests import groups_of
from runtime.model.facts import ModelFacts

_PATH = re.compile(r"(?<![\w./:-])(?:~|/(?:[\w.+@-]+/)+)(?:[\w.+@-]+/)*(?=[\w.+@-])")
"""The folders of an absolute path: the name of the file stays."""

_Value = TypeVar("_Value")


class AnonymousSource:
    """A `SiteSource` whose records have `user-1`, `host-1` and the names of files for what they hide."""

    def __init__(self, source: SiteSource) -> None:
        """Find the names to hide: who submitted, and the hosts of devices."""
        self._source = source
        campaigns = source.campaigns()
        users, hosts = set(), set()
        self._tries: dict[str, int] = {}
        for one in campaigns:
            account, _, host = one.submitted_by.partition("@")
            users.add(account)
            hosts.add(host)
            for cell in source.cells(one.campaign_id):
                # An attempt at an open cell changes its page, but nothing that comparisons read of the cell.
                if cell.state in OPEN:
                    self._tries[cell.cell_id] = len(cell.attempts)
                # A lab's devices are called AGENT.DEVICE. What a host calls itself is in whole records alone.
                hosts |= {cell.device.rpartition(".")[0], cell.facts.get("hostname", "")}
        self._names = {name: f"user-{n}" for n, name in enumerate(sorted(users - {""}), 1)}
        self._names |= {name: f"host-{n}" for n, name in enumerate(sorted(hosts - {""}), 1)}
        # The first alternative that fits is taken: `rack.example` has to be tried before `rack`.
        longest_first = sorted(map(re.escape, self._names), key=len, reverse=True)
        # `$.` matches nothing, for a farm without a name to hide.
        self._named = re.compile(rf"(?<![\w-])(?:{'|'.join(longest_first) or '$.'})(?![\w-])")

    def campaigns(self) -> Sequence[CampaignRecord]:
        """Every campaign."""
        return [self._hide(one) for one in self._source.campaigns()]

    def cells(self, campaign_id: str) -> Sequence[CellRecord]:
        """Return the cells of a campaign."""
        return [self._hide(one) for one in self._source.cells(campaign_id)]

    def groups(self) -> Sequence[CellGroup]:
        """Return the cells of all campaigns by model."""
        # Not the source's own groups: their names and digests are of records in which nothing is hidden.
        cells = (cell for one in self._source.campaigns() for cell in self.compared(one.campaign_id))
        return groups_of(cells, self._tries)

    def compared(self, campaign_id: str, model: str | None = None) -> Sequence[ComparedCell]:
        """Return the same cells, or those of a model, with the compared fields at least."""
        # The model is chosen behind the hiding, which may have changed its name.
        cells = map(self._hide, self._source.compared(campaign_id))
        return [one for one in cells if model in (None, one.model)]

    def measurements(self, campaign_id: str) -> Mapping[str, str]:
        """Return the stored measurements of a campaign's cells."""
        return self._hide(self._source.measurements(campaign_id))

    def samples(self, cell: CellRecord) -> Sequence[ProcessSamples]:
        """Raw samples of a cell's counted result. Raises `FarmError`."""
        return [self._hide(one) for one in self._source.samples(cell)]

    def manifest(self, campaign_id: str) -> ManifestRecord | None:
        """Return the campaign file of a campaign."""
        found = self._hide(self._source.manifest(campaign_id))
        # By the models' names, as the cells have them.
        origins = {} if found is None else {self._text(model): one for model, one in found.origins.items()}
        return found and replace(found, origins=origins)

    def model_facts(self, sha256: str) -> ModelFacts | None:
        """Return the facts of a model file."""
        return self._source.model_facts(sha256)

    def _hide(self, value: _Value) -> _Value:
        """Return a record with every text in it rewritten, whatever it is nested in."""
        return cast(_Value, self._hidden(value))

    def _hidden(self, value: Any) -> Any:
        # Not `isinstance`: members of enumerations are texts, too, hide nothing, and must stay members.
        if type(value) is str:
            return self._text(value)
        if isinstance(value, BaseModel):
            # Empty fields hide nothing, and stay as they are.
            return value.model_copy(update={name: self._hidden(one) for name, one in value if one})
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{f.name: self._hidden(getattr(value, f.name)) for f in fields(value)})
        if isinstance(value, Mapping):
            return {name: self._hidden(one) for name, one in value.items()}
        # Lists of numbers, such as samples, hide nothing, and are far too long to be copied.
        if isinstance(value, tuple | list) and value and not isinstance(value[0], int | float):
            return type(value)(self._hidden(one) for one in value)
        return value

    def _text(self, text: str) -> str:
        hidden = _PATH.sub("…/", text)
        return self._named.sub(lambda m: self._names[m[0]], hidden)
