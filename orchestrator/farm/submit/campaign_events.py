"""Reads a campaign's events from the database, so every terminal shows the same ones."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from orchestrator.config.clock import utc_now
from orchestrator.db import events
from orchestrator.db.campaigns import farm_state as campaign_progress
from orchestrator.db.devices import devices
from orchestrator.db.engine.sessions import Database, Session
from orchestrator.db.results import records
from orchestrator.results.events import EventKind, FarmEvent


@dataclass(frozen=True, slots=True)
class Seen:
    """A watcher's knowledge: the number of the last event, and the phase of each running cell."""

    event: int
    phases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class News:
    """The events since a look. `seen`: the watcher's new knowledge; `goes_on`: a cell has not ended; `more`:
    there are further events, which did not fit.
    """

    events: tuple[FarmEvent, ...]
    seen: Seen
    goes_on: bool
    more: bool = False


class CampaignEvents:
    """Reports the events since the last call. `look` reads them; `since`: the last one that is known."""

    def __init__(self, look: Callable[[Seen], News], since: int) -> None:
        self._look = look
        self._seen = Seen(since)

    def emit(self, on_event: Callable[[FarmEvent], None]) -> bool:
        """Report new events; True while the campaign has cells that have not ended.

        Raises `UnreachableError`; the next call then reports what this one would have.
        """
        while True:
            news = self._look(self._seen)
            self._seen = news.seen
            for event in news.events:
                on_event(event)
            if not news.more:
                return news.goes_on


def look(database: Database, campaign_no: int, seen: Seen, most: int | None = None) -> News:
    """Return a campaign's events since `seen`, at most so many. Raises `UnreachableError`."""
    with database.read() as session:
        return _news(session, campaign_no, seen, most)


def _news(session: Session, campaign_no: int, seen: Seen, most: int | None) -> News:
    # All queries see one snapshot: `done` follows from several counts, which must be of one moment.
    open_count = campaign_progress.open_count(session, campaign_no)
    rows = events.of_campaign(session, campaign_no, seen.event, most)
    phases = records.phases(session, campaign_no)
    found: list[tuple[str, EventKind, str]] = [(row.cell_id, row.kind, row.text) for row in rows]
    found += [
        (cell_id, "phase", text)
        for cell_id, text in phases.items()
        if text and text != seen.phases.get(cell_id)
    ]
    now = Seen(rows[-1].no if rows else seen.event, phases)
    later = events.finished_after(session, campaign_no, now.event)
    return News(
        _events(session, campaign_no, found, open_count, later),
        now,
        goes_on=open_count > 0,
        # They may just have been all: the next look then finds none.
        more=most is not None and len(rows) == most,
    )


def _events(
    session: Session, campaign_no: int, found: list[tuple[str, EventKind, str]], open_count: int, later: int
) -> tuple[FarmEvent, ...]:
    """Return the events with the cells that had ended by each: of two that end together, each has its own
    number.

    `later`: cells that end in events after these.
    """
    if not found:
        return ()
    cells = {c.cell_id: c for c in records.cells_by_id(session, list({name for name, _, _ in found}))}
    total = campaign_progress.total_count(session, campaign_no)
    eta_s = _eta_s(session, campaign_no) if open_count else 0.0
    # The number before the first of these events. A cell that is measured again finishes more than once:
    # without the bound it could be negative.
    done = max(0, total - open_count - later - sum(kind == "finished" for _, kind, _ in found))
    told = []
    for name, kind, text in found:
        done += kind == "finished"
        told.append(FarmEvent(kind, cells[name], text, done, total, eta_s))
    return tuple(told)


def _eta_s(session: Session, campaign_no: int) -> float:
    """Seconds until the busiest exclusion group, whose devices run one at a time, has finished."""
    queues: dict[str, float] = defaultdict(float)
    expected = campaign_progress.remaining_by_target(session, campaign_no, utc_now())
    groups = devices.groups(session, list(expected))
    for target, seconds in expected.items():
        # A class of devices has no exclusion group: its cells count as a queue of their own.
        queues[groups.get(target, target)] += seconds
    return max(queues.values(), default=0.0)
