"""Adds blocks to a campaign that was just measured: as its time budget allows, and to decide its limits."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.errors import UsageError
from orchestrator.farm.again.refining import Refined
from orchestrator.farm.conducting import read_campaign
from orchestrator.farm.remote.farm import AnyFarm
from orchestrator.farm.submit.submission import Submitted
from orchestrator.manifest.budget import RATIO, Budget
from orchestrator.manifest.campaign import LEAST_TARGET
from orchestrator.results.budgets import judge_budgets, open_cells
from orchestrator.results.format import counted
from orchestrator.results.grading import p50_grade, seen_once


@dataclass(frozen=True, slots=True)
class FurtherBlocks:
    """Refines one campaign for whoever measured it. `note` receives a line for each step; `run` returns when
    what was queued is measured.
    """

    farm: AnyFarm
    campaign_id: str
    note: Callable[[str], None]
    run: Callable[[Submitted], None]

    def spend(self, seconds: float) -> None:
        """Spend what is left of a campaign's time: once more on verdicts of one attempt, so that they rest on
        blocks of two times, then on its vaguest cells.
        """
        ends_s = time.monotonic() + seconds
        if seconds > 0.0 and (once := self._seen_once()):
            self.note(f"blocks of another time for {counted(len(once), 'verdict')} of one attempt")
            self._refine("time_budget", None, seconds, once)
        # The first refinement may have taken all of the time.
        if (left_s := ends_s - time.monotonic()) > 0.0:
            self._refine("time_budget", None, left_s)

    def _seen_once(self) -> tuple[str, ...]:
        campaign, cells = read_campaign(self.farm, self.campaign_id, self.note)
        return tuple(cell.cell_id for cell in seen_once(cells, campaign.baseline))

    def decide(self, budgets: Sequence[Budget]) -> None:
        """Add blocks, once, where it is open whether a cell keeps a limit, for twice the precision.

        The change since an earlier campaign is no such limit: blocks do not tell what sessions differ by.
        """
        own = [budget for budget in budgets if budget.figure != RATIO]
        if not own:
            return
        _, cells = read_campaign(self.farm, self.campaign_id, self.note)
        undecided = open_cells(judge_budgets(cells, own))
        if undecided:
            halves = [
                grade.half for cell in undecided if (grade := p50_grade(cell)) and grade.half is not None
            ]
            # One target for all of these cells: half of the narrowest half width.
            target = max(LEAST_TARGET, min(halves, default=0.1) / 2.0)
            self._refine("open budgets", target, None, tuple(cell.cell_id for cell in undecided))

    def measure(self, refined: Refined) -> None:
        """Say what was queued and measure it. `KeyboardInterrupt` cancels the rest on one machine."""
        for line in _lines(refined):
            self.note(line)
        if not refined.cells:
            return
        try:
            self.run(refined.submitted)
        except KeyboardInterrupt:
            if self.farm.schedules_elsewhere:
                self.note(f"stopped watching; the farm measures on: farm status --watch {self.campaign_id}")
            else:
                self.farm.steering.cancel(self.campaign_id)
                self.note(f"stopped; every result is kept. Go on with: farm refine {self.campaign_id}")
            raise

    def _refine(
        self, what_for: str, target: float | None, seconds: float | None, cells: tuple[str, ...] = ()
    ) -> None:
        """Refine, and only say so where that cannot be: the campaign is measured all the same."""
        try:
            refined = self.farm.refinements.refine(self.campaign_id, target, seconds, cells)
        except UsageError as error:
            self.note(f"{what_for}: {error}")
        else:
            self.measure(refined)


def _lines(refined: Refined) -> Iterator[str]:
    if refined.cells:
        about = f", about {max(1, round(refined.seconds / 60))} min" if refined.seconds else ""
        yield f"adding blocks to {counted(len(refined.cells), 'cell')}, the vaguest first{about}"
    for name, why in refined.left_out.items():
        yield f"left out: {name}: {why}"
