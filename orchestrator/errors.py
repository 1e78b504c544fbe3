"""Errors that reach the user as one clear line, and the exit code each one stands for.

FarmError               exit 1
├── UsageError          exit 2: a file, key, name or value the user gave
└── UnreachableError    exit 4: database, broker or agent cannot be reached

A verb exits with 3 where a budget is exceeded or a cell is slower, and with 5 where that is not decided.
"""


class FarmError(Exception):
    """Root; the text says what, where and what to do."""

    exit_code = 1


class UsageError(FarmError):
    """The user's input cannot be used; nothing was stored."""

    exit_code = 2


class UnreachableError(FarmError):
    """The farm cannot be reached."""

    exit_code = 4
