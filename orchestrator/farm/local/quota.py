"""Names whoever runs this process, and limits the waiting cells of one user."""

import getpass
import os
import socket
from dataclasses import dataclass
from typing import Final

from orchestrator.db.campaigns import farm_state
from orchestrator.db.engine.turn import Turn
from orchestrator.errors import UsageError
from orchestrator.policy.rights import User


def account() -> str:
    """`USER@HOST`, by the operating system; no user of the endpoint has a name with an @."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # an account without an entry in the system's list, as in many containers
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"


@dataclass(frozen=True, slots=True)
class Quota:
    """So many cells of a `user` of the endpoint may wait; None for either: as many as there are.

    An administrator has no such limit.
    """

    user: User | None = None
    most_waiting: int | None = None

    def waiting(self, turn: Turn) -> int:
        """Count the user's waiting cells; 0 if no limit applies."""
        return 0 if self._user is None else farm_state.waiting_of(turn, self._user.name)

    def require(self, waiting: int, new: int, what: str) -> None:
        """Raise `UsageError` where `what` adds so many `new` cells that more would wait than may."""
        if self._user is None or self.most_waiting is None or not new:
            return
        if waiting + new > self.most_waiting:
            raise UsageError(
                f"user {self._user.name} has {waiting} cells waiting and {what} adds {new}; at most "
                f"{self.most_waiting} may wait (FARM_USER_CELLS of the server): cancel some, or try later"
            )

    @property
    def _user(self) -> User | None:
        """The user to whom the limit applies."""
        return None if self.user is None or self.user.is_admin else self.user


NO_LIMIT: Final = Quota()
"""The quota of whoever has the database."""
