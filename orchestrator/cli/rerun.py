"""Measures the pairs of `farm compare --rerun` again, and lists those that were left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from orchestrator.cli import output
from orchestrator.cli.progress import measure
from orchestrator.errors import UsageError
from orchestrator.farm.again.rerunning import Keyed, LeftOut, plan_rerun
from orchestrator.farm.remote.documents import submit_document
from orchestrator.farm.remote.farm import AnyFarm
from orchestrator.results.records import CellRecord
from orchestrator.sources.store import Store


@dataclass(frozen=True, slots=True)
class Rerun:
    """The cells measured anew, as the two sides of a comparison; their campaigns; and the cells left out."""

    sides: tuple[Keyed, Keyed]
    campaigns: tuple[str, ...]
    left_out: tuple[LeftOut, ...]

    def lines(self) -> list[str]:
        """Return the lines below the table: the campaigns, and each reason once with its count."""
        named = ", ".join(self.campaigns)
        lines = [f"measured anew by blocks in {named}: farm results {self.campaigns[0]}"]
        reasons = Counter(one.why for one in self.left_out)
        examples = {one.why: " ".join(one.key) for one in reversed(self.left_out)}
        for why, count in reasons.items():
            more = "" if count == 1 else f" and {count - 1} more"
            lines.append(f"not measured anew: {examples[why]}{more}: {why}")
        return lines

    def as_json(self) -> dict[str, Any]:
        """Return the same for scripts."""
        left_out = [{"key": list(one.key), "why": one.why} for one in self.left_out]
        return {"campaigns": list(self.campaigns), "left_out": left_out}


def measured_anew(farm: AnyFarm, first: Keyed, second: Keyed) -> Rerun:
    """Measure every pair that can be. Raises `UsageError` where none can, `StoppedError` after Ctrl-C."""
    import yaml

    planned, left_out = plan_rerun(first, second, farm.devices.hello(), Store(farm.home.store))
    if not planned:
        example = left_out[0] if left_out else None
        why = "there are no cells" if example is None else f"{' '.join(example.key)}: {example.why}"
        more = "" if len(left_out) < 2 else f" (and {len(left_out) - 1} more)"
        raise UsageError(f"--rerun: no cell can be measured anew; {why}{more}")
    before: dict[tuple[str, ...], CellRecord] = {}
    after: dict[tuple[str, ...], CellRecord] = {}
    campaigns = []
    for one in planned:
        text = yaml.safe_dump(dict(one.document), sort_keys=False, allow_unicode=True)
        submitted = submit_document(farm, text, "the campaign of --rerun", output.note)
        output.note(
            f"campaign {submitted.campaign_id}: {output.cells(2 * len(one.keys))}, "
            f"{one.second} over {one.first} by blocks"
        )
        measure(farm, submitted)
        sides = one.sides(_cells(farm, submitted.campaign_id))
        before |= sides[0]
        after |= sides[1]
        campaigns.append(submitted.campaign_id)
    return Rerun((before, after), tuple(campaigns), left_out)


def _cells(farm: AnyFarm, campaign_id: str) -> list[CellRecord]:
    return farm.wait(output.note)(lambda: farm.reading.cells(campaign_id))
