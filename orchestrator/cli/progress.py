"""Measures a campaign to its end and shows it: a line per finished cell, and one about the present state."""

import os
import sys
import time
from functools import partial

from orchestrator.cli import output
from orchestrator.cli.stopping import StoppedError, same_command, stoppable
from orchestrator.farm.further_blocks import FurtherBlocks
from orchestrator.farm.remote.farm import AnyFarm
from orchestrator.farm.submit.submission import Submitted
from orchestrator.results.comparison import latency
from orchestrator.results.events import FarmEvent
from orchestrator.results.records import CellRecord
from orchestrator.results.wording import LONGEST_REASON, first_line

_SCROLLED = {"retry", "refinement", "interrupted", "late", "quarantined"}


class Progress:
    """Called with each event of a campaign."""

    def __init__(self, status: output.StatusLine) -> None:
        self._status = status
        self._started_at = time.monotonic()

    def __call__(self, event: FarmEvent) -> None:
        """Show one event."""
        line = line_of(event)
        if line is not None:
            self._status.event(line)
        elif event.kind != "reused":
            elapsed_s = time.monotonic() - self._started_at
            eta = "" if event.eta_s is None else f" (about {clock(event.eta_s)} left)"
            what = event.text or event.kind
            self._status.update(f"{event.done}/{event.total} {clock(elapsed_s)}{eta} {_name(event)}: {what}")


def line_of(event: FarmEvent) -> str | None:
    """Return the line of an event that stays on the screen; None for one that only describes the present."""
    if event.kind == "finished":
        return f"[{event.done}/{event.total}] {_name(event)}: {outcome(event.cell)}"
    if event.kind in _SCROLLED:
        text = first_line(event.text, LONGEST_REASON)
        return f"[{event.done}/{event.total}] {_name(event)}: {event.kind}: {text}"
    return None


def _name(event: FarmEvent) -> str:
    return f"{event.cell.model} on {event.cell.delegate}@{event.cell.device}"


def outcome(cell: CellRecord) -> str:
    """Describe the end of a cell, on one line."""
    if cell.status == "done" and not cell.struck_out:
        return "; ".join(filter(None, (latency(cell), first_line(cell.kept, LONGEST_REASON))))
    word = cell.struck_as if cell.struck_out else cell.status
    return word if cell.reason is None else f"{word}: {first_line(cell.reason.text, LONGEST_REASON)}"


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def run_shown(farm: AnyFarm, submitted: Submitted) -> None:
    """Measure a campaign to its end and show how it goes. Raises `StoppedError` after Ctrl-C."""
    with stoppable(), output.StatusLine() as status:
        farm.running.run(submitted, Progress(status), farm.wait(status.event))


def further_blocks(farm: AnyFarm, campaign_id: str) -> FurtherBlocks:
    """Return what refines a campaign with its progress on the terminal."""
    return FurtherBlocks(farm, campaign_id, output.note, partial(run_shown, farm))


def measure(farm: AnyFarm, submitted: Submitted) -> None:
    """Do the same, and tell a user who stops it how the campaign goes on."""
    try:
        run_shown(farm, submitted)
    except StoppedError:
        if farm.schedules_elsewhere:
            output.note(
                "stopped watching; the campaign goes on. Watch it: farm status --watch "
                f"{submitted.campaign_id}"
            )
            output.note(f"  end it: farm cancel {submitted.campaign_id}")
        else:
            output.note("stopped; finished cells and blocks are kept. Continue with:")
            output.note(f"  {same_command(sys.argv, os.environ)}")
        raise
