"""Manages agents' credentials in the database and at the broker, together with the farm's keys."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from agent.wire.credentials import Applicant
from agent.wire.envelope import SigningKey
from agent.wire.messages import Reason, ReasonCode
from agent.wire.private_folder import ExposedError
from agent.wire.service_urls import crosses_in_the_clear, without_secrets
from orchestrator.config.clock import utc_now
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.db import tables
from orchestrator.db.cells import running_attempts
from orchestrator.db.devices import agents, credentials
from orchestrator.db.engine.sessions import Database
from orchestrator.db.engine.turn import Turn
from orchestrator.db.scheduling import assignments, ingest
from orchestrator.errors import FarmError, UnreachableError, UsageError
from orchestrator.trust import acl, enrolment, revocations
from orchestrator.trust.farm_key_rotation import FarmKeyFolder

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CredentialsService:
    """The credentials of one lab's agents. Any thread may use it."""

    home: FarmHome
    lab: LabConfig
    database: Database
    key_folder: FarmKeyFolder = field(repr=False)

    @classmethod
    def open(cls, home: FarmHome, lab: LabConfig, database: Database) -> "CredentialsService":
        """Open the lab's credentials; the farm's key is made where it is missing. Raises `FarmError`."""
        if not lab.is_lab:
            raise UsageError(
                "only a lab has agents to enrol; set FARM_BROKER_URL=redis://..., or broker_url in farm.toml"
            )
        return cls(home, lab, database, FarmKeyFolder(home.keys))

    @property
    def key(self) -> SigningKey:
        """The farm's newest key."""
        return self.key_folder.keys().current

    def invite(self, agent_id: str, valid: timedelta, overlap: timedelta | None = None) -> str:
        """Return a one-time token; see `enrolment.invite`. Raises `UsageError`."""
        with self.database.write() as turn:
            return enrolment.invite(
                turn, agent_id, self.key.public.key_id, utc_now(), valid=valid, overlap=overlap
            )

    def enrol_here(self, agent_id: str, state: Path, overlap: timedelta | None = None) -> None:
        """Enrol an agent of this machine: its credentials are written into its state folder. Without an
        endpoint its store is a link to the farm's. Raises `UsageError` or `FarmError`.
        """
        token = self.invite(agent_id, enrolment.VALID, overlap)
        applicant = Applicant.new()
        request = enrolment.Request.read(applicant.request(token))
        with self.database.write() as turn:
            enrolment.enrol(turn, request, utc_now())
        address = self.lab.address
        granted = enrolment.granted(agent_id, self.key.public, address, self.admit(agent_id))
        try:
            applicant.accept(token, granted).write(state)
            store = state / "store"
            if address is None and not store.is_symlink():
                store.symlink_to(self.home.store)
        except ExposedError as error:
            raise FarmError(str(error)) from error
        except OSError as error:
            raise FarmError(f"{state} cannot store the credentials: {error.strerror}") from error

    def admit(self, agent_id: str) -> Mapping[str, str | None]:
        """Give an agent its users at the broker. Returns the broker's part of the enrolment's answer."""
        self.apply_rights()
        url = self.lab.agent_broker_url or self.lab.broker_url or ""
        return {
            "broker_url": without_secrets(url),
            "broker_user": acl.user(agent_id, self.lab.key_prefix),
            "key_prefix": self.lab.key_prefix,
            "broker_ca": acl.authority_text(self.lab.broker_ca),
        }

    def revoke(self, agent_id: str) -> int:
        """Shut an agent out: end its keys, its users at the broker and its attempts; remove it from the lab.

        Returns how many attempts were running. Raises `UsageError`.
        """
        now = utc_now()
        why = f"agent {agent_id} was revoked"
        with self.database.write() as turn:
            if not credentials.revoke_all(turn, agent_id, now):
                known = ", ".join(credentials.enrolled(turn)) or "none"
                raise UsageError(f"agent {agent_id} was never enrolled; known: {known}")
            # In one transaction: no attempt may be dispatched to the agent in between.
            lost = self._end_attempts(turn, agent_id, why, now)
        self.apply_rights()
        return lost

    def apply_rights(self) -> None:
        """Give the broker the users that the database knows. A broker that refuses only causes a warning.

        Two processes may do so at once, one of them with users that were read before a revocation: each
        reads them again when it is done.
        """
        # First: the broker must not get users that only a restored backup has.
        self.keep_revocations()
        given: Mapping[str, list[str]] | None = None
        while (users := self._users()) != given:
            try:
                done = acl.apply(self.lab.broker_url or "", self.lab.broker_ca, self.lab.key_prefix, users)
            except UnreachableError as error:
                log.warning("%s; its users are updated when it answers", error)
                return
            if not done:
                log.warning(
                    "the farm's user may not manage users at the broker; load the output of: "
                    "farm lab agents acl"
                )
                return
            given = users

    def keep_revocations(self) -> None:
        """Keep what was revoked, and revoke again what a restored backup made valid. Raises `FarmError`."""
        for who in revocations.reconcile(self.database, self.home.keys, utc_now()):
            log.warning("%s is revoked again: the database was restored from a backup that is older", who)

    def acl_commands(self) -> list[str]:
        """Return the users that the broker should have, as Redis commands."""
        return acl.lines(self.lab.broker_url or "", self.lab.broker_ca, self._users())

    def warn_of_plaintext(self) -> None:
        """Log a warning for each connection that crosses a network unencrypted."""
        for name, url in self.lab.broker_urls.items():
            if crosses_in_the_clear(url):
                log.warning(
                    "PASSWORDS AND RESULTS CROSS THE NETWORK IN THE CLEAR: %s has no TLS; use rediss://", name
                )

    def _users(self) -> dict[str, list[str]]:
        with self.database.read() as session:
            return acl.users(credentials.valid(session, utc_now()), self.lab.key_prefix)

    def _end_attempts(self, turn: Turn, agent_id: str, why: str, now: datetime) -> int:
        running = running_attempts.of_agent(turn, agent_id)
        for attempt_id in running:
            ingest.lose(turn, attempt_id, Reason(code=ReasonCode.AGENT_LOST, text=why), now)
        if agents.set_state(turn, agent_id, tables.AGENT_REMOVED):
            assignments.fail_unplaceable(turn, agents.devices_of(turn, [agent_id]), why, now)
        return len(running)
