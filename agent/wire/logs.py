"""How an agent logs: a line per event on stderr, as text or as JSON."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from enum import StrEnum


class LogFormat(StrEnum):
    """`json`: one object per line with time, level and message."""

    TEXT = "text"
    JSON = "json"


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """A record as JSON."""
        said = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        return json.dumps(said, ensure_ascii=False)


def log_to_stderr(form: LogFormat = LogFormat.TEXT) -> None:
    """Send what the agent has to say to stderr."""
    handler = logging.StreamHandler()
    plain = logging.Formatter("farm-agent: %(message)s")
    handler.setFormatter(JsonLines() if form is LogFormat.JSON else plain)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)
