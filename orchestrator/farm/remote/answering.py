"""Answers the calls of users' machines with the server's own farm, each for the user who asks."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from operator import attrgetter

from pydantic import ValidationError

from orchestrator.db.engine.sessions import RefusedError
from orchestrator.errors import UsageError
from orchestrator.farm.opening import Farm
from orchestrator.farm.remote.calls import CALLS
from orchestrator.policy.rights import Scope, User

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UsersFace:
    """The calls of `CALLS`. Any thread may use it."""

    farm: Farm

    def scope_of(self, call: str) -> Scope | None:
        """Return the scope that a call needs; None if there is no such call."""
        return CALLS[call].scope if call in CALLS else None

    def answer(self, user: User, call: str, arguments: bytes) -> bytes:
        """Make a call for a user. Raises what the method raises, and `UsageError` for other arguments."""
        found = CALLS[call]
        try:
            given = found.read(arguments)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise UsageError(f"{call}: {where}: {first['msg']}") from error
        method = attrgetter(found.name)(self.farm.seen_by(user))
        try:
            return found.answer.dump_json(method(**given))
        except RefusedError as error:
            # Texts with a NUL, numbers of more than 64 bits: nothing of it was stored.
            log.warning("user %s: %s: the database refuses it: %s", user.name, call, type(error).__name__)
            raise UsageError(f"{call}: the farm's database does not take these values") from error
