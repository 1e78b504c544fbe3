"""`farm status --watch`: show a running campaign, device by device and cell by cell."""

import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.cli import output
from orchestrator.cli.outcome import end_of_campaign
from orchestrator.cli.progress import Progress, clock, line_of
from orchestrator.cli.stopping import stoppable
from orchestrator.db.devices.states import DeviceState
from orchestrator.errors import UnreachableError
from orchestrator.farm.remote.farm import AnyFarm
from orchestrator.farm.submit.campaign_events import CampaignEvents
from orchestrator.policy.lifecycle import OPEN
from orchestrator.policy.why import Why
from orchestrator.results.comparison import all_well
from orchestrator.results.events import FarmEvent

_LOOK_EVERY_S = 0.5
"""Seconds between two drawings: a display that feels live for two small queries."""

_ABANDONED_AFTER = 8
"""Checks in a row without a scheduler after which watching ends. Chosen: 4 s, in which one `farm submit` can
take over from another.
"""

_LAST_EVENTS = 10
"""Lines of what ended last; with the other two tables they fit a screen of 40 lines."""

_NEXT_CELLS = 8
"""Lines of cells that come next. Each asks the database why it waits, so more cost more."""

_ASK_EVERY_S = 3.0
"""Seconds between two queries of why cells wait, the most expensive part of the screen."""


def watch(farm: AnyFarm, ref: str | None, as_json: bool, *, verbose: bool) -> int:
    """Watch a campaign until it ends, by device and by cell; return the exit code of its outcome."""
    campaign_id, news = farm.reading.events(ref)
    with stoppable():
        _follow(farm, campaign_id, news, as_json)
    if as_json:
        return 0 if all_well(farm.reading.cells(campaign_id)) else 1
    output.note("")
    ended = farm.reading.campaign(campaign_id), farm.reading.cells(campaign_id)
    return end_of_campaign(*ended, as_json=False, verbose=verbose)


def _follow(farm: AnyFarm, campaign_id: str, news: CampaignEvents, as_json: bool) -> None:
    if as_json:
        _until_ended(farm, news, _emit)
    elif output.is_terminal(sys.stdout):
        _draw(farm, campaign_id, news)
    else:
        with output.StatusLine() as status:
            _until_ended(farm, news, Progress(status))


def _until_ended(farm: AnyFarm, news: CampaignEvents, on_event: Any, on_look: Any = None) -> None:
    """Watch until the end. Raises `UnreachableError` where no scheduler runs any more."""
    alone, wait = 0, farm.wait(output.note)
    while wait(lambda: news.emit(on_event)):
        overview = wait(farm.reading.overview)
        # One check is not enough: between two `farm submit` no process holds the lock for a moment.
        alone = 0 if overview.schedules else alone + 1
        if alone >= _ABANDONED_AFTER:
            raise UnreachableError(f"the campaign has not ended, and {overview.scheduler}")
        if on_look is not None:
            wait(on_look)
        time.sleep(_LOOK_EVERY_S)


def _emit(event: FarmEvent) -> None:
    cell = event.cell
    fields = {
        "kind": event.kind,
        "cell": cell.cell_id,
        "model": cell.model,
        "delegate": cell.delegate,
        "device": cell.device,
        "status": cell.state,
        "text": event.text,
        "done": event.done,
        "total": event.total,
        "eta_s": event.eta_s,
    }
    output.emit_json_line(fields)
    # Whoever reads a pipe gets each event at once.
    sys.stdout.flush()


@dataclass
class _Screen:
    """The screen's content. The newest event holds the campaign's progress; before it, `begun` does."""

    begun: tuple[int, int, float | None]
    newest: FarmEvent | None = None
    last: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_EVENTS))

    def __call__(self, event: FarmEvent) -> None:
        """Remember an event."""
        self.newest = event
        text = line_of(event)
        if text is not None:
            self.last.append(text)

    def draw(self, devices: Sequence[DeviceState], waiting: Sequence[tuple[str, Why]]) -> Any:
        """Return the devices, the cells that come next, what ended last, and how far it is."""
        # A terminal alone needs these.
        from rich.console import Group  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table("device", "state", "cell", "now", "left", box=None, pad_edge=False)
        for device in devices:
            left = "" if device.left_s is None else clock(device.left_s)
            words = (device.device_id, device.state, device.cell, device.note, left)
            table.add_row(*(Text(output.clean(word)) for word in words))
        cells = Table("next cell", "", "queue", "starts in", "because", box=None, pad_edge=False)
        for what, why in waiting:
            eta = "" if why.eta_s is None else clock(why.eta_s)
            words = (why.cell_id, what, why.line, eta, why.blocks[0])
            cells.add_row(*(Text(output.clean(word), no_wrap=True, overflow="ellipsis") for word in words))
        states = Counter(device.state for device in devices)
        far = f"{states['busy']} of {len(devices)} devices busy"
        new = self.newest
        done, total, eta_s = self.begun if new is None else (new.done, new.total, new.eta_s)
        eta = "" if eta_s is None else f", about {clock(eta_s)} left"
        far += f"; {done} of {total} cells{eta}"
        parts = [table, cells] if waiting else [table]
        return Group(*parts, *(Text(output.clean(text)) for text in self.last), Text(far))


@dataclass
class _Waiting:
    """The next cells, queried every few seconds: the query costs more than the rest of the screen."""

    farm: AnyFarm
    campaign_id: str
    _known: Sequence[tuple[str, Why]] = ()
    _due_s: float = 0.0

    def look(self) -> Sequence[tuple[str, Why]]:
        """Return those cells, at most a few seconds old."""
        if time.monotonic() >= self._due_s:
            self._known = self.farm.reading.waiting(self.campaign_id, _NEXT_CELLS)
            self._due_s = time.monotonic() + _ASK_EVERY_S
        return self._known


def _draw(farm: AnyFarm, campaign_id: str, news: CampaignEvents) -> None:
    from rich.live import Live  # noqa: PLC0415  # a terminal alone needs it

    counts = farm.reading.campaign(campaign_id).counts
    open_cells = sum(counts.get(state, 0) for state in OPEN)
    total = sum(counts.values())
    screen, waiting = _Screen((total - open_cells, total, None)), _Waiting(farm, campaign_id)
    # Drawn by `look` alone, without the thread that rich would start.
    with Live(auto_refresh=False, transient=True) as live:

        def look() -> None:
            live.update(screen.draw(farm.reading.devices(), waiting.look()), refresh=True)

        look()
        _until_ended(farm, news, screen, look)
