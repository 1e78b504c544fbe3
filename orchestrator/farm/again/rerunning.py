"""Plans campaigns that measure two sides of a comparison again, interleaved; lists pairs that cannot be.

A pair is a cell of each side with the same model file on the same device. Its two settings of the delegate
become two delegates of a new campaign, the first of which is its baseline, so that they are measured in
blocks. A campaign has one baseline: each distinct pair of settings is a campaign of its own.
"""

import glob
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agent.wire.messages import AgentHello, Device
from agent.wire.passes import PASSES
from orchestrator.errors import FarmError
from orchestrator.farm.again.reproduction import delegate_name, inputs_entry, measure_block, model_source
from orchestrator.manifest.delegates import known_kinds
from orchestrator.policy.fingerprint import digest
from orchestrator.results.records import CellRecord
from orchestrator.results.regression import Names
from orchestrator.sources.store import Store
from runtime.common.statistics import ROBUST_UNITS

Keyed: TypeAlias = Mapping[tuple[str, ...], CellRecord]
"""Cells by what names them in a comparison."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A pair that is not measured anew, and why."""

    key: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Rerun:
    """A campaign as a `models.yaml` has it. `first`, `second`: the names of its two delegates; `keys`: the
    pair's key in the comparison, by the model and the device of its cells.
    """

    document: Mapping[str, Any]
    first: str
    second: str
    keys: Mapping[tuple[str, str], tuple[str, ...]]

    def sides(self, cells: Sequence[CellRecord]) -> tuple[Keyed, Keyed]:
        """Return the campaign's cells as the two sides of a comparison."""
        named = [
            {self.keys[c.model, c.device]: c for c in cells if c.delegate == name}
            for name in (self.first, self.second)
        ]
        return named[0], named[1]


@dataclass(slots=True)
class _Group:
    """The pairs that have the same settings on both sides."""

    pairs: dict[tuple[str, ...], tuple[CellRecord, CellRecord]] = field(default_factory=dict)

    @property
    def sample(self) -> tuple[CellRecord, CellRecord]:
        return next(iter(self.pairs.values()))


def plan_rerun(
    first: Keyed, second: Keyed, present: AgentHello, store: Store, names: Names = ("before", "after")
) -> tuple[tuple[Rerun, ...], tuple[LeftOut, ...]]:
    """Plan the campaigns that measure the pairs of two sides anew on the present devices; list those left
    out. `names`: what the sides are called.

    A pair of equal settings is measured too: it says whether anything differs here and now.
    """
    groups: dict[str, _Group] = {}
    left_out = []
    for key in dict.fromkeys((*first, *second)):
        before, after = first.get(key), second.get(key)
        why = _obstacle(before, after, present, store, names)
        if before is None or after is None or why is not None:
            left_out.append(LeftOut(key, why or ""))
            continue
        settings = [(cell.delegate, cell.delegate_kind, cell.delegate_options) for cell in (before, after)]
        # A campaign has one level, and a model in it one way to be measured.
        identity = digest({"settings": settings, "level": after.level})
        groups.setdefault(identity, _Group()).pairs[key] = before, after
    return tuple(_rerun(group, store) for group in groups.values()), tuple(left_out)


def _obstacle(
    first: CellRecord | None, second: CellRecord | None, present: AgentHello, store: Store, names: Names
) -> str | None:
    """Why a pair cannot be measured in blocks here; None where it can."""
    before, after = names
    if first is None or second is None:
        return f"not in {before if first is None else after}"
    if first.model_sha256 != second.model_sha256:
        return (
            f"two model files ({first.model_sha256[:12]} in {before}, {second.model_sha256[:12]} in "
            f"{after}), and a block measures one; compare them unpaired, without --rerun"
        )
    if first.inputs != second.inputs:
        return f"other inputs in {before} than in {after}, and a block measures with the same"
    if (first.device, first.device_name) != (second.device, second.device_name):
        return (
            f"measured on {_device(first)} in {before} and {_device(second)} in {after}, and a block is on "
            "one device"
        )
    if second.plan is None:
        return "the farm runs an older release, which does not tell how the cell was measured"
    if (why := no_host((first, second), present)) is not None:
        return why
    return _no_model(second, store)


def _device(cell: CellRecord) -> str:
    return f"{cell.device} ({cell.device_name})"


def no_host(cells: Sequence[CellRecord], present: AgentHello) -> str | None:
    """Why the one device of these cells cannot measure them now; None where it can."""
    found: Device | None = next((d for d in present.devices if d.device_id == cells[0].device), None)
    if found is None:
        return f"device {cells[0].device} is not present"
    if found.name != cells[0].device_name:
        return f"{cells[0].device} is another device by now: {cells[0].device_name} then, {found.name} now"
    for kind in (cell.delegate_kind for cell in cells):
        if kind not in known_kinds():
            return f"delegate {kind} is not installed here"
        if kind not in found.delegates:
            told = next((one.reason for one in present.missing if one.kind == kind), "it does not host it")
            return f"{found.device_id} has no delegate {kind} now: {told}"
    return None


def _no_model(cell: CellRecord, store: Store) -> str | None:
    try:
        _, missing = model_source(cell, store)
    except FarmError as error:
        return str(error)
    if missing is None:
        return None
    return f"its model (sha256 {cell.model_sha256[:12]}) is not in the store {store.root} any more"


def _rerun(group: _Group, store: Store) -> Rerun:
    before, after = group.sample
    first, second = delegate_name(before), delegate_name(after)
    # The delegates of one campaign have names of their own.
    if first == second:
        first, second = f"{first}-a", f"{second}-b"
    keys = {(a.model, a.device): key for key, (_, a) in group.pairs.items()}
    document: dict[str, Any] = {
        "version": 1,
        "campaign": f"rerun-{delegate_name(after)}",
        "level": after.level,
        "defaults": {"reuse": "never"},
        "models": list(_models(group, store)),
        "delegates": {
            name: {"kind": cell.delegate_kind, **cell.delegate_options}
            for name, cell in ((first, before), (second, after))
        },
        "devices": [{"name": name} for name in sorted({device for _, device in keys})],
        "baseline": {"delegate": first},
    }
    excluded = list(_excluded(keys))
    return Rerun(document | ({"exclude": excluded} if excluded else {}), first, second, keys)


def _models(group: _Group, store: Store) -> Iterator[dict[str, Any]]:
    """Each model once, as side B has it."""
    for cell in {after.model: after for _, after in group.pairs.values()}.values():
        assert cell.plan is not None
        source, _ = model_source(cell, store)
        # The pair is measured anew for a verdict: one slow block of fewer would keep it open.
        least = max(cell.plan.min_blocks, ROBUST_UNITS)
        blocks = {"min_blocks": least, "max_blocks": max(cell.plan.max_blocks, least)}
        # What follows the timed processes is no part of a comparison by turns.
        without = dict.fromkeys((one.asked for one in PASSES), None)
        plan = cell.plan.model_copy(update={**blocks, **without})
        entry = {"id": cell.model, "source": source, "sha256": cell.model_sha256}
        yield entry | {"measure": measure_block(plan)} | inputs_entry(cell, plan, store)


def _excluded(keys: Mapping[tuple[str, str], tuple[str, ...]]) -> Iterator[dict[str, str]]:
    """Yield a rule for each model and device of the campaign that are no pair."""
    models, devices = ({pair[place] for pair in keys} for place in (0, 1))
    for model in sorted(models):
        for device in sorted(devices):
            if (model, device) not in keys:
                # Rules are patterns, and names may hold their signs.
                yield {"model": glob.escape(model), "device": glob.escape(device)}
