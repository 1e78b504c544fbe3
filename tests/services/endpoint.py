"""The real endpoint over a real database and store, in this process, for tests of either side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.config.address import Address
from orchestrator.config.limits import StoreLimits
from orchestrator.db.engine.sessions import Database
from orchestrator.db.migrate import migrate
from orchestrator.endpoint.access import AgentRegistry
from orchestrator.endpoint.app import application
from orchestrator.endpoint.server import EndpointServer
from orchestrator.endpoint.user_calls import Face
from orchestrator.errors import UsageError
from orchestrator.monitoring.metrics_page import MetricsPage
from orchestrator.policy.rights import User
from orchestrator.sources.store import Store
from tests.services.certificates import Pair

TOKEN = "t" * 43
READ_TOKEN = "r" * 40
SUBMIT_TOKEN = "s" * 40


@dataclass
class KnownAgents:
    """Agents by their token; an enrolment with the token `once` is granted. `records` answer in its place."""

    records: AgentRegistry | None = None
    tokens: dict[str, str] = field(default_factory=lambda: {TOKEN: "rack-1"})
    asked: list[Mapping[str, object]] = field(default_factory=list)

    def enrol(self, asked: Mapping[str, object]) -> Mapping[str, object]:
        if self.records is not None:
            return self.records.enrol(asked)
        self.asked.append(asked)
        if asked.get("token") != "once":
            raise UsageError("this token was used or is none")
        return {"agent_id": "rack-2", "token": "x" * 43}

    def agent_of(self, bearer: str) -> str | None:
        return self.tokens.get(bearer) if self.records is None else self.records.agent_of(bearer)

    def may_fetch(self, agent_id: str, sha256: str) -> bool:
        return self.records is None or self.records.may_fetch(agent_id, sha256)

    def user_of(self, bearer: str) -> User | None:
        return None if self.records is None else self.records.user_of(bearer)


class Endpoint:
    """Answers on a free port of the loopback until `close`."""

    def __init__(
        self,
        folder: Path,
        limits: StoreLimits | None = None,
        tls: Pair | None = None,
        database_url: str | None = None,
        face: Callable[[Database], Face] | None = None,
        authority: Path | None = None,
        store: Path | None = None,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.store = Store(store or folder / "farm-store")
        self.database = Database.connect(database_url or folder / "endpoint.db")
        migrate(self.database)
        self.trust = KnownAgents()
        scheme = "http" if tls is None else "https"
        self.address = address = Address(
            f"{scheme}://127.0.0.1",
            "127.0.0.1",
            0,
            tls and tls.certificate,
            tls and tls.key,
            authority,
            READ_TOKEN,
            SUBMIT_TOKEN,
        )
        self.metrics = MetricsPage(self.database, self.store, limits or StoreLimits(), suspect_s=60.0)
        self.database.watchers.append(self.metrics.counters.note)
        app = application(
            self.database,
            self.store,
            limits or StoreLimits(),
            self.trust,
            address,
            None if face is None else face(self.database),
            self.metrics,
        )
        self._open = ExitStack()
        self._server = self._open.enter_context(EndpointServer(app, address))
        self.url = f"{scheme}://127.0.0.1:{self._server.port}"

    @property
    def port(self) -> int:
        return self._server.port

    def close(self) -> None:
        self._open.close()
        self.database.close()
