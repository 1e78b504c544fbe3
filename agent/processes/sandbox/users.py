"""A user id and a group id for each attempt, from a range that belongs to nobody else on the host."""

import re
import secrets
from dataclasses import dataclass
from itertools import chain
from typing import Final

from agent.processes.sandbox.limits import tasks_of

USERS_VARIABLE: Final = "FARM_RUNNER_USERS"
_RANGE: Final = re.compile(r"(\d{1,9})-(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Users:
    """The ids from `first` to `last`, which no account of the host has."""

    first: int
    last: int

    @classmethod
    def parsed(cls, text: str) -> "Users | None":
        """Read `FIRST-LAST` or `off`. Raises `ValueError` naming the variable."""
        if text == "off":
            return None
        match = _RANGE.fullmatch(text)
        if match is None or not 0 < int(match[1]) <= int(match[2]):
            raise ValueError(f"{USERS_VARIABLE}: {text!r} is neither off nor a range of ids, as {USERS}")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def free(self) -> int:
        """Return an id that no process of this host has. Raises `OSError` where there is none."""
        middle = self.first + secrets.randbelow(self.last - self.first + 1)
        for user in chain(range(middle, self.last + 1), range(self.first, middle)):
            if tasks_of(user) == 0:
                return user
        raise OSError(f"{USERS_VARIABLE}: every user id of {self} runs a process; give more of them")


USERS: Final = Users(61184, 65519)
"""Those of systemd's transient services (DynamicUser=), which no distribution gives to an account."""
