"""`farm show --logs`: show a cell's events and its runners' output."""

import time
from dataclasses import dataclass, field

from orchestrator.cli import output
from orchestrator.cli.stopping import stoppable
from orchestrator.db.events import CellEvent
from orchestrator.farm.remote.farm import AnyFarm
from orchestrator.policy.lifecycle import LIVE_ATTEMPT, OPEN
from orchestrator.results.records import CellRecord

_LOOK_EVERY_S = 0.5
"""Seconds between two looks with --follow: agents report output every second or so, so more adds nothing."""

_REMEMBERED = 32 * 1024
"""Characters of an attempt that are remembered as shown: more than the tail that comes with its result, so
the tail is never shown twice.
"""


def show_logs(farm: AnyFarm, cell_id: str, as_json: bool, *, follow: bool) -> None:
    """Show what happened to a cell, and what its runners wrote; with `follow` until it has ended."""
    log = _Log(farm, cell_id, as_json)
    try:
        with stoppable():
            # The first look fails as any other verb does: only what was followed is waited for.
            goes_on, wait = log.show(), farm.wait(output.note)
            while goes_on and follow:
                time.sleep(_LOOK_EVERY_S)
                goes_on = wait(log.show)
    finally:
        log.end_lines()


@dataclass
class _Log:
    """Shows each thing once, however often it looks."""

    farm: AnyFarm
    prefix: str
    as_json: bool
    _newest: int = 0
    _shown: dict[str, str] = field(default_factory=dict)
    _ends: dict[str, int] = field(default_factory=dict)
    _begun: dict[str, str] = field(default_factory=dict)

    def show(self) -> bool:
        """Show new entries; True while the cell has not ended."""
        # The cell first: of one that has ended, every event is there to be read.
        cell = self.farm.reading.cell(self.prefix)
        cell_id, moments = self.farm.reading.history(cell.cell_id, self._newest)
        for moment in moments:
            self._newest = moment.no
            self._moment(cell_id, moment)
        for attempt in cell.attempts:
            if attempt.log_tail:
                shown = self._shown.get(attempt.attempt_id, "")
                self._text(cell, attempt.attempt_id, unseen(shown, attempt.log_tail))
            elif attempt.state in LIVE_ATTEMPT:
                self._live(cell, attempt.attempt_id)
        return cell.state in OPEN

    def _live(self, cell: CellRecord, attempt_id: str) -> None:
        """Show the new output of a running runner."""
        output = self.farm.reading.output(attempt_id)
        known = self._ends.get(attempt_id, 0)
        if output is None or output.end <= known:
            return
        # The farm keeps the end of an output alone: what came and went between two looks is lost.
        if output.start > known:
            self._text(cell, attempt_id, f"[{output.start - known} characters are left out here]\n")
        self._text(cell, attempt_id, output.text[max(0, known - output.start) :])
        self._ends[attempt_id] = output.end

    def _moment(self, cell_id: str, moment: CellEvent) -> None:
        if self.as_json:
            fields = {"cell": cell_id, "at": moment.at, "kind": moment.kind, "text": moment.text}
            output.emit_json_line(fields)
        else:
            output.line(
                f"{moment.at:%Y-%m-%d %H:%M:%S} {moment.kind}{': ' + moment.text if moment.text else ''}"
            )

    def _text(self, cell: CellRecord, attempt_id: str, text: str) -> None:
        """Show a runner's output. As text, an incomplete line is held back until its rest arrives."""
        if not text:
            return
        self._shown[attempt_id] = (self._shown.get(attempt_id, "") + text)[-_REMEMBERED:]
        if self.as_json:
            fields = {"cell": cell.cell_id, "attempt": attempt_id, "log": text}
            output.emit_json_line(fields)
            return
        *lines, rest = (self._begun.pop(attempt_id, "") + text).split("\n")
        for line in lines:
            output.line(f"  | {line}")
        if rest:
            self._begun[attempt_id] = rest

    def end_lines(self) -> None:
        """Show the incomplete lines: no more output will be read."""
        for line in self._begun.values():
            output.line(f"  | {line}")
        self._begun.clear()


def unseen(shown: str, tail: str) -> str:
    """Return the end of a text whose beginning was shown: `tail` without the end of `shown`."""
    # The longest overlap: a runner may have written the same line twice.
    known = next(count for count in range(len(tail), -1, -1) if shown.endswith(tail[:count]))
    return tail[known:]
