"""Errors that reach the user as one clear line, and the exit code each one stands for.

FarmError               exit 1
├── UsageError          exit 2: a file, key, name or value the user gave
├── BudgetError         exit 3: a budget or regression gate
└── UnreachableError    exit 4: database, broker or agent cannot be reached
"""

from __future__ import annotations


class FarmError(Exception):
    """Root; the text says what, where and what to do."""

    exit_code = 1


class UsageError(FarmError):
    """What the user gave cannot be used; nothing was stored."""

    exit_code = 2


class BudgetError(FarmError):
    """A budget was exceeded."""

    exit_code = 3


class UnreachableError(FarmError):
    """The farm cannot be reached."""

    exit_code = 4
