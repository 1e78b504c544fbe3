"""Counts what committed transactions did, and how long devices stood idle meanwhile."""

from collections import defaultdict
from datetime import datetime
from functools import partial
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from agent.wire.messages import ReasonCode
from orchestrator.policy.assign import Occupancy
from orchestrator.results import events
from runtime.common.verdict import Grade


class IdleGaps:
    """Remembers when each exclusion group became free last; groups are paths that begin with the agent."""

    def __init__(self) -> None:
        """Nothing is known before the first attempt of this process has ended."""
        self._freed: dict[str, dict[str, datetime]] = defaultdict(dict)

    def end(self, ended: events.AttemptEnded) -> None:
        """Note that a group is free."""
        self._freed[_host(ended.group)][ended.group] = ended.at

    def begin(self, begun: events.AttemptBegun) -> float | None:
        """Seconds from when device and cell were both free to when the device got the cell.

        None where no attempt of this process has ended on the silicon that it takes.
        """
        known = self._freed[_host(begun.group)].items()
        # Groups above and below the one that begins count too: what runs there excludes it.
        freed = [at for group, at in known if not Occupancy([group]).free(begun.group)]
        if not freed:
            return None
        return max(0.0, (begun.at - max(*freed, begun.ready_at)).total_seconds())


def _host(group: str) -> str:
    return group.partition("/")[0]


_GAP_BUCKETS_S: Final = (0.005, 0.02, 0.1, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0)
"""Upper bounds in seconds. The first ones tell apart what the scheduler takes, the last ones a device that a
sweep, a quarantine or a pause held back; more bounds only cost series.
"""

_LAG_BUCKETS_S: Final = (0.005, 0.02, 0.1, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0)
"""Upper bounds in seconds, also of round trips. A batch is stored within a second; the last bounds see a
database or a broker that is away.
"""

_UNGRADED: Final = "none"
_ACCURACY: Final = ("pass", "fail", "unjudged")


class Counters:
    """The counters and clocks of one process. Any thread may call the methods; none of them raises.

    The begins and ends of attempts come from the scheduler's thread alone, so that `IdleGaps` needs no lock.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        """Every label has its values from the start: a rate needs a zero before the first event."""
        # The time of each metric's creation would double the series.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        self._attempts = counter(
            "farm_attempts", "Attempts that ended, by the code of their reason.", ["reason"]
        )
        self._grades = counter(
            "farm_result_grades", "Stored results, by the grade of their figures.", ["grade"]
        )
        self._accuracy = counter(
            "farm_accuracy_verdicts", "Stored results, by the verdict on their outputs.", ["verdict"]
        )
        self._gap = histogram(
            "farm_idle_gap_seconds", "From when a device and a cell for it were free to the attempt's begin.",
            buckets=_GAP_BUCKETS_S,
        )  # fmt: skip
        self._lag = histogram(
            "farm_ingest_lag_seconds", "From when a batch of messages was received to its commit.",
            buckets=_LAG_BUCKETS_S,
        )  # fmt: skip
        self._round_trip = histogram(
            "farm_broker_round_trip_seconds", "How long a word to itself takes the farm through the broker.",
            buckets=_LAG_BUCKETS_S,
        )  # fmt: skip
        self._recoveries = counter(
            "farm_recoveries", "Runs of the operator's command for lost devices, by outcome.", ["outcome"]
        )
        self._gaps = IdleGaps()
        for code in ReasonCode:
            self._attempts.labels(code.value)
        for outcome in get_args(events.RecoveryOutcome):
            self._recoveries.labels(outcome)
        for grade in (*get_args(Grade), _UNGRADED):
            self._grades.labels(grade)
        for verdict in _ACCURACY:
            self._accuracy.labels(verdict)

    def note(self, fact: events.Fact) -> None:
        """Count what a transaction has committed."""
        match fact:
            case events.AttemptBegun():
                gap_s = self._gaps.begin(fact)
                if gap_s is not None:
                    self._gap.observe(gap_s)
            case events.AttemptEnded():
                self._gaps.end(fact)
                self._attempts.labels(fact.reason).inc()
            case events.ResultStored():
                self._grades.labels(fact.grade or _UNGRADED).inc()
                self._accuracy.labels(fact.accuracy or "unjudged").inc()
            case events.DeviceRecovered():
                self._recoveries.labels(fact.outcome).inc()

    def note_stored(self, seconds: float) -> None:
        """Messages were stored so long after they had been received."""
        self._lag.observe(seconds)

    def note_round_trip(self, seconds: float) -> None:
        """Record the seconds that a message to this process took through the broker."""
        self._round_trip.observe(seconds)
