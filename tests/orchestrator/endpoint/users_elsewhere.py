"""Users on machines of their own, and the farm's real endpoint before a real database; nothing measures."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from agent.wire.messages import JobSpec
from orchestrator import cli
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.endpoint.access import AgentRegistry
from orchestrator.farm.opening import Farm
from orchestrator.farm.remote.calls import UsersFace
from orchestrator.trust.farm_key_rotation import FarmKeyFolder
from orchestrator.trust.users import Users
from tests.orchestrator.cli.conftest import Ran
from tests.orchestrator.cli.models import unary_model
from tests.orchestrator.stocked import cells, dispatch, report_devices
from tests.services.certificates import Authority
from tests.services.endpoint import Endpoint

CAMPAIGN = """\
version: 1
campaign: NAME
models:
  - {id: small, source: small.tflite}
delegates:
  cpu: {kind: cpu}
"""


@dataclass
class Elsewhere:
    """The farm, and its users by name."""

    folder: Path
    farm: Farm
    endpoint: Endpoint
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def users(self) -> Users:
        return Users(self.farm.database)

    def add(self, name: str, *args: Any, **kwargs: Any) -> str:
        """Add a user with an empty machine, whose token the farm's administrator has made."""
        token = self.users.add(name, *args, **kwargs)
        self.tokens[name] = token
        (self.folder / name).mkdir(exist_ok=True)
        return token

    def environment(self, name: str, **settings: str) -> dict[str, str]:
        bare = {key: text for key, text in os.environ.items() if not key.startswith("FARM_")}
        own = {
            "HOME": str(self.folder / name),
            "FARM_HOME": str(self.folder / name / "home"),
            "NO_COLOR": "1",
        }
        return bare | own | {"FARM_URL": self.endpoint.url, "FARM_TOKEN": self.tokens[name]} | settings

    def call(self, name: str, *arguments: str, **settings: str) -> Ran:
        """`farm` as this user runs it, in this process."""
        out, err = io.StringIO(), io.StringIO()
        environment = self.environment(name, **settings)
        with (
            patch.dict(os.environ, environment, clear=True),
            chdir(self.folder / name),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = cli.run(list(arguments))
        assert environment["FARM_TOKEN"] not in err.getvalue()
        return Ran(code, out.getvalue(), err.getvalue())

    def answer(self, name: str, *arguments: str) -> Any:
        ran = self.call(name, *arguments, "--json")
        assert ran.code == 0, ran.err
        return json.loads(ran.out)

    def write(self, user: str, name: str, size: int = 8) -> None:
        """Write a campaign and its model into the folder of a user."""
        (self.folder / user / "small.tflite").write_bytes(unary_model(size=size))
        (self.folder / user / "models.yaml").write_text(CAMPAIGN.replace("NAME", name))

    def submitted(self, user: str, name: str, *options: str, size: int = 8) -> str:
        """Submit a campaign as this user and return its id."""
        self.write(user, name, size)
        ran = self.call(user, "submit", "models.yaml", "--detach", "--json", *options)
        assert ran.code == 0, ran.err
        return str(ran.json()["campaign_id"])

    def begin(self, campaign_id: str) -> JobSpec:
        """Begin the first waiting cell of a campaign."""
        waiting = [cell.cell_id for cell in self.farm.reading.cells(campaign_id) if cell.status == "queued"]
        return dispatch(self.farm.database, waiting[0])

    @property
    def cells(self) -> int:
        return len(cells(self.farm.database))


@contextmanager
def users_elsewhere(
    folder: Path, database_url: str | None = None, *, tls: bool = False
) -> Iterator[Elsewhere]:
    authority = Authority(folder) if tls else None
    home = FarmHome(folder / "server")
    lab = LabConfig(broker_url="redis://127.0.0.1:1/0", database_url=database_url)
    with Farm.open(home, lab=lab, serving=True) as farm:
        report_devices(farm.database)
        opened = Endpoint(
            folder / "server",
            tls=None if authority is None else authority.issue(),
            database_url=database_url or f"sqlite:///{home.database}",
            face=lambda _: UsersFace(farm),
            authority=None if authority is None else authority.path,
            store=home.store,
        )
        keys = FarmKeyFolder(home.keys)
        opened.trust.records = AgentRegistry(farm.database, opened.address, keys.keys, lambda _: {})
        try:
            yield Elsewhere(folder, farm, opened)
        finally:
            opened.close()
