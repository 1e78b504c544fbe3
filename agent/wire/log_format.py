"""The forms in which a program of either floor logs; apart from `logs`, so that help needs no logging."""

from enum import StrEnum


class LogFormat(StrEnum):
    """`json`: one object per line with time, level, logger, message and, where there is one, traceback."""

    TEXT = "text"
    JSON = "json"
