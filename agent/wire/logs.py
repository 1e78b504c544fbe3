"""Logs the programs of either floor: one line per event on stderr, as text or as JSON.

`RareLog` is for events that a stranger can cause at will: the number of its lines is bounded.
"""

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final


class LogFormat(StrEnum):
    """`json`: one object per line with time, level, logger, message and, where there is one, traceback."""

    TEXT = "text"
    JSON = "json"


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON; a traceback is its last field."""
        fields = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def log_to_stderr(form: LogFormat, *, prefix: str, loggers: Sequence[str]) -> None:
    """Log to stderr: `loggers` and those below them from level INFO on, all others from WARNING on.

    `prefix` begins each line of text, in the notation of `logging.Formatter` (`%(asctime)s `); JSON lines
    have no prefix.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form is LogFormat.JSON else logging.Formatter(f"{prefix}%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    for name in loggers:
        logging.getLogger(name).setLevel(logging.INFO)


def brief(error: BaseException) -> str:
    """Format an error as one line of at most 300 characters."""
    lines = str(error).splitlines() or ["no reason given"]
    return f"{type(error).__name__}: {lines[0]}"[:_LONGEST]


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
            # Not as the format: a stranger's text may have percent signs.
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
