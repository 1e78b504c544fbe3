"""What the endpoint asks the farm's records about agents."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.address import Address
from orchestrator.db.session import Database
from orchestrator.trust import credentials, enrolment

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Records:
    """Enrols agents and knows their tokens; any thread may ask.

    `farm_key`: the farm's public key as text. `admit`: lets an agent's new credentials in at the broker, and
    gives the broker's part of the answer (`broker_url`, `broker_user`, `key_prefix`, `broker_ca`).
    """

    database: Database
    address: Address
    farm_key: str
    admit: Callable[[str], Mapping[str, str | None]]

    def enrol(self, asked: Mapping[str, object]) -> Mapping[str, object]:
        """Use a one-time token. Raises `UsageError`."""
        request = enrolment.Request.read(asked)
        with self.database.write() as session:
            agent_id = enrolment.enrol(session, request, datetime.now(UTC))
        log.info("agent %s is enrolled with key %s", agent_id, request.public_key.key_id)
        return {
            "agent_id": agent_id,
            "farm_key": self.farm_key,
            "endpoint": self.address.url,
            "endpoint_ca": self.address.authority_text(),
            **self.admit(agent_id),
        }

    def agent_of(self, bearer: str) -> str | None:
        """The agent whose valid token this is."""
        with self.database.read() as session:
            return credentials.agent_of_bearer(session, bearer, datetime.now(UTC))
