"""Decides what a user may do: the scopes of a token, and whose campaign is whose. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.manifest.campaign import HIGHEST_PRIORITY

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class Scope(StrEnum):
    """One right of a token. `admin` includes every other one."""

    READ = "read"
    SUBMIT = "submit"
    CANCEL_OWN = "cancel-own"
    ADMIN = "admin"


USUAL: Final = (Scope.SUBMIT, Scope.CANCEL_OWN, Scope.READ)
"""The scopes of a user for whom the administrator names none."""


@dataclass(frozen=True, slots=True)
class User:
    """Somebody whose token is valid."""

    name: str
    scopes: frozenset[Scope]

    @property
    def is_admin(self) -> bool:
        """Whether the user may do everything, with every campaign."""
        return Scope.ADMIN in self.scopes

    def may(self, scope: Scope) -> bool:
        """Whether the token has this scope, or `admin`."""
        return scope in self.scopes or self.is_admin

    def require(self, scope: Scope) -> None:
        """Raise `UsageError` where the token lacks the scope."""
        if not self.may(scope):
            has = ", ".join(sorted(self.scopes))
            raise UsageError(
                f"the token of user {self.name} may not do that: it needs scope {scope}, it has {has}; "
                f"on the server: farm lab users add {self.name} --replace "
                f"--scope {scope},{has.replace(' ', '')}"
            )


def require_priority(priority: int, user: User | None) -> None:
    """Raise `UsageError` for a priority that the user may not give: all share the devices alike.

    `user`: None for whoever has the database.
    """
    if abs(priority) > HIGHEST_PRIORITY:
        raise UsageError(f"a priority is between -{HIGHEST_PRIORITY} and {HIGHEST_PRIORITY}")
    if priority > 0 and user is not None and not user.is_admin:
        raise UsageError(
            f"priority {priority}: only an administrator goes before other users; leave it out, or give one "
            "of at most 0"
        )


def check_user_name(name: str) -> None:
    """Check a user's name, with which a token begins. Raises `UsageError`."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be a user's name: at most 63 lower-case letters, digits, - and _, "
            "no - or _ first"
        )


def read_scopes(words: Iterable[str]) -> tuple[Scope, ...]:
    """Read scopes by their names, each once, in the order of `Scope`. Raises `UsageError`."""
    given = {word.strip() for word in words}
    # Members of a `StrEnum` are equal to their words, and hash like them.
    for word in sorted(given - set(Scope)):
        raise UsageError(f"unknown scope {word!r}; known: {', '.join(Scope)}")
    return tuple(scope for scope in Scope if scope in given)
