"""Logs the programs of either floor: one line per event on stderr, as text or as JSON."""

import json
import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from agent.wire.log_format import LogFormat


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
