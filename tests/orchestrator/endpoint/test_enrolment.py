"""Enrolment over HTTPS, with the agent's own code on one side and the farm's records on the other."""

from __future__ import annotations

import io
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from agent.link.artifact_client import EndpointArtifacts, TransferError, artifacts_of
from agent.wire.credentials import Applicant, Credentials
from agent.wire.envelope import SigningKey
from agent.wire.messages import AgentHello, JobSpec
from orchestrator.config.address import Address
from orchestrator.db.devices import credentials, devices
from orchestrator.db.scheduling import ingest
from orchestrator.endpoint.access import AgentRegistry
from orchestrator.trust import enrolment
from orchestrator.trust.farm_key_rotation import FarmKeys
from tests.orchestrator.asked import CPU, asked
from tests.orchestrator.stocked import cells, dispatch, result, stock
from tests.services.certificates import Authority
from tests.services.endpoint import Endpoint

BROKER = {"broker_url": "redis://broker", "broker_user": "rack-1", "key_prefix": "farm:", "broker_ca": None}
FARM = SigningKey.new()


class Enrolling:
    """An endpoint behind TLS that knows its agents from the database alone."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.endpoint = Endpoint(folder, tls=self.authority.issue())
        address = Address(self.endpoint.url, "127.0.0.1", self.endpoint.port, authority=self.authority.path)
        self.admitted: list[str] = []
        self.endpoint.trust.records = AgentRegistry(
            self.endpoint.database,
            address,
            lambda: FarmKeys(FARM),
            lambda name: self.admitted.append(name) or BROKER,
        )
        trusting = ssl.create_default_context(cafile=self.authority.path)
        self.client = httpx.Client(base_url=self.endpoint.url, verify=trusting, trust_env=False)

    def invite(self, name: str = "rack-1", valid: timedelta = timedelta(hours=1)) -> str:
        with self.endpoint.database.write() as session:
            return enrolment.invite(session, name, FARM.public.key_id, datetime.now(UTC), valid=valid)

    def enrol(self, invitation: str) -> Credentials:
        applicant = Applicant.new()
        answer = self.client.post("/enrol", json=applicant.request(invitation))
        assert answer.status_code == 200, answer.text
        return applicant.accept(invitation, answer.json())

    def give(self, device_id: str, model: bytes) -> JobSpec:
        """Begin an attempt on this device about a model that the farm has."""
        self.endpoint.store.put(io.BytesIO(model), "m")
        agent_id = device_id.partition(".")[0]
        device = CPU.model_copy(update={"device_id": device_id})
        stock(self.endpoint.database, asked((model.decode(),), {"cpu": {}}), (device,))
        hello = AgentHello(agent_id=agent_id, host="h", version="0", devices=(device,))
        with self.endpoint.database.write() as session:
            devices.record_hello(session, hello, datetime.now(UTC), sole=False)
        return dispatch(self.endpoint.database, cells(self.endpoint.database)[0].cell_id)

    def fetching(self, given: Credentials, state: Path) -> EndpointArtifacts:
        """Return the link's own client of the endpoint, from credentials that were read back."""
        given.write(state)
        artifacts = artifacts_of(Credentials.read(state).values(), state)
        assert isinstance(artifacts, EndpointArtifacts)
        return artifacts

    def close(self) -> None:
        self.client.close()
        self.endpoint.close()


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Enrolling]:
    made = Enrolling(tmp_path)
    yield made
    made.close()


def test_an_agent_fetches_the_models_of_its_own_live_attempts_alone(farm: Enrolling, tmp_path: Path) -> None:
    job = farm.give("rack-1.cpu", b"m")
    mine = farm.fetching(farm.enrol(farm.invite()), tmp_path / "mine")
    others = farm.fetching(farm.enrol(farm.invite("rack-2")), tmp_path / "others")
    with mine.client, others.client:
        mine.fetch(job.model_sha256, 1)
        with pytest.raises(TransferError, match="403: no running attempt of agent rack-2 uses"):
            others.fetch(job.model_sha256, 1)
        with farm.endpoint.database.write() as session:
            ingest.apply(session, result(job), datetime.now(UTC))
        assert mine.client.get(f"/artifacts/{job.model_sha256}").status_code == 403, "the attempt has ended"


def test_an_enrolled_agent_is_let_in_until_it_is_revoked(farm: Enrolling, tmp_path: Path) -> None:
    job = farm.give("rack-1.cpu", b"m")
    artifacts = farm.fetching(farm.enrol(farm.invite()), tmp_path / "state")
    assert farm.admitted == ["rack-1"]
    with artifacts.client:
        artifacts.fetch(job.model_sha256, 1)
        with farm.endpoint.database.write() as session:
            assert credentials.revoke_all(session, "rack-1", datetime.now(UTC))
        with pytest.raises(TransferError, match="401"):
            artifacts.upload("0" * 64)


def test_a_one_time_token_is_good_for_one_agent_once_and_in_time(farm: Enrolling) -> None:
    invitation = farm.invite()
    farm.enrol(invitation)
    for bad in (invitation, farm.invite("rack-2", timedelta(seconds=-1)), f"nonsense.{FARM.public.key_id}"):
        answer = farm.client.post("/enrol", json=Applicant.new().request(bad))
        assert (answer.status_code, "make a new one" in answer.json()["error"]) == (403, True)
        assert bad not in answer.text
    assert farm.admitted == ["rack-1"]


def test_no_secret_of_an_agent_is_in_the_database(farm: Enrolling) -> None:
    invitation = farm.invite()
    given = farm.enrol(invitation)
    path = farm.endpoint.database.path
    assert path is not None
    stored = b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))
    for secret in (given.token, given.signing_key, invitation):
        assert secret.encode() not in stored


def test_an_invented_one_time_token_does_not_wait_for_the_databases_writers(farm: Enrolling) -> None:
    invented = f"invented.{FARM.public.key_id}"
    with farm.endpoint.database.write() as turn:
        enrolment.invite(turn, "rack-9", FARM.public.key_id, datetime.now(UTC))
        answer = farm.client.post("/enrol", json=Applicant.new().request(invented), timeout=60.0)
    assert answer.status_code == 403
