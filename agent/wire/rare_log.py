"""A log with a bounded number of lines, for events that a stranger can cause at will."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_FIRST: Final = 5
"""Events that are logged in full per interval. Chosen: enough to see whether they are of one kind; an event
that is not an attack happens less often."""
_INTERVAL_S: Final = 60.0
"""Seconds after which events are logged in full again, and the others of before are counted in one line.
Larger hides a second kind of event for longer; smaller fills the log of a farm that is flooded for days."""
_LONGEST: Final = 300
"""Characters of one event that are logged: a line of a log, whatever a message holds."""


@dataclass(slots=True)
class RareLog:
    """Logs the first events of an interval in full, and at its end one line with the number of the others.

    `what` names the events in that line. For one thread.
    """

    log: logging.Logger
    what: str
    monotonic: Callable[[], float] = time.monotonic
    _since_s: float = float("-inf")
    _seen: int = 0

    def warning(self, text: str) -> None:
        """Log an event, or only count it."""
        self.tick()
        if self._seen == 0:
            self._since_s = self.monotonic()
        self._seen += 1
        if self._seen <= _FIRST:
            self.log.warning("%s", text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
        if self._seen == _FIRST:
            self.log.warning("%s: more of them within %.0f s are only counted", self.what, _INTERVAL_S)

    def tick(self) -> None:
        """Log the summary of an interval that is over. To be called from time to time."""
        if self._seen and self.monotonic() - self._since_s >= _INTERVAL_S:
            if self._seen > _FIRST:
                self.log.warning(
                    "%s: %d more in the last %.0f s", self.what, self._seen - _FIRST, _INTERVAL_S
                )
            self._seen = 0
