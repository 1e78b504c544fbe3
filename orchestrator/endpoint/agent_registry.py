"""Serves the endpoint's questions about agents and users: enrolment, tokens, the artifacts each may fetch."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.wire.credentials import farm_of
from agent.wire.envelope import PublicKey
from orchestrator.config.address import Address
from orchestrator.config.clock import utc_now
from orchestrator.db.cells import running_attempts
from orchestrator.db.devices import credentials
from orchestrator.db.engine.sessions import Database
from orchestrator.db.results import references
from orchestrator.errors import UsageError
from orchestrator.policy.rights import User
from orchestrator.trust import enrolment
from orchestrator.trust.farm_key_rotation import FarmKeys
from orchestrator.trust.users import Users

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgentRegistry:
    """Enrols agents and checks their tokens; any thread may call it.

    `farm_keys`: the farm's valid keys. `admit`: makes an agent's new credentials valid at the broker,
    and returns the broker's part of the answer (`broker_url`, `broker_user`, `key_prefix`, `broker_ca`).
    """

    database: Database
    address: Address
    farm_keys: Callable[[], FarmKeys]
    admit: Callable[[str], Mapping[str, str | None]]

    def enrol(self, asked: Mapping[str, object]) -> Mapping[str, object]:
        """Use a one-time token. Raises `UsageError`."""
        request = enrolment.Request.read(asked)
        with self.database.read() as session:
            enrolment.require_invited(session, request, utc_now())
        with self.database.write() as turn:
            agent_id = enrolment.enrol(turn, request, utc_now())
            key = self._named_by(request.token)
        log.info("agent %s is enrolled with key %s", agent_id, request.public_key.key_id)
        return {
            "agent_id": agent_id,
            "farm_key": key.text,
            "endpoint": self.address.url,
            "endpoint_ca": self.address.authority_text(),
            **self.admit(agent_id),
        }

    def _named_by(self, token: str) -> PublicKey:
        """Return the farm's key that a one-time token names: the agent accepts no other."""
        key = self.farm_keys().named(farm_of(token))
        if key is None:
            raise UsageError(
                "this one-time token names a key that the farm has replaced; make a new one on the server: "
                "farm lab agents enrol NAME"
            )
        return key

    def agent_of(self, bearer: str) -> str | None:
        """Return the agent with this valid token."""
        with self.database.read() as session:
            return credentials.agent_of_bearer(session, bearer, utc_now())

    def may_fetch(self, agent_id: str, sha256: str) -> bool:
        """Whether an attempt of this agent that is under way uses this artifact."""
        with self.database.read() as session:
            return running_attempts.uses(session, agent_id, sha256) or references.is_of_live_attempt(
                session, agent_id, sha256
            )

    def user_of(self, bearer: str) -> User | None:
        """Return the user with this token. Raises `UsageError` for one that is over."""
        return Users(self.database).with_token(bearer)
