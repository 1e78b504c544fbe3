"""Enrolment over HTTPS, with the agent's own code on one side and the farm's records on the other."""

from __future__ import annotations

import io
import os
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from agent.credentials import Applicant, Credentials
from agent.envelope import SigningKey
from agent.link.endpoint import EndpointArtifacts, TransferError, artifacts_of
from orchestrator.address import Address
from orchestrator.endpoint.trusted import Records
from orchestrator.trust import credentials, enrolment
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
        self.endpoint.trust.records = Records(
            self.endpoint.database,
            address,
            FARM.public.text,
            lambda name: self.admitted.append(name) or BROKER,
        )
        trusting = ssl.create_default_context(cafile=self.authority.path)
        self.client = httpx.Client(base_url=self.endpoint.url, verify=trusting, trust_env=False)

    def invite(self, name: str = "rack-1", valid: timedelta = timedelta(hours=1)) -> str:
        with self.endpoint.database.write() as session:
            return enrolment.invite(session, name, FARM.public.key_id, datetime.now(UTC), valid=valid)

    def enrol(self, invitation: str) -> Credentials:
        applicant = Applicant.new()
        answer = self.client.post("/enrol", json=applicant.ask(invitation))
        assert answer.status_code == 200, answer.text
        return applicant.accept(invitation, answer.json())

    def close(self) -> None:
        self.client.close()
        self.endpoint.close()


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Enrolling]:
    made = Enrolling(tmp_path)
    yield made
    made.close()


def test_an_enrolled_agent_fetches_models_with_what_it_was_given_until_it_is_revoked(
    farm: Enrolling, tmp_path: Path
) -> None:
    model = os.urandom(5000)
    stored = farm.endpoint.store.put(io.BytesIO(model), "m")
    given = farm.enrol(farm.invite())
    assert farm.admitted == ["rack-1"]
    given.write(tmp_path / "state")
    artifacts = artifacts_of(Credentials.read(tmp_path / "state").values(), tmp_path / "state")
    assert isinstance(artifacts, EndpointArtifacts)
    with artifacts.client:
        artifacts.fetch(stored.sha256, len(model))
        with farm.endpoint.database.write() as session:
            assert credentials.revoke_all(session, "rack-1", datetime.now(UTC))
        with pytest.raises(TransferError, match="401"):
            artifacts.upload("0" * 64)


def test_a_one_time_token_is_good_for_one_agent_once_and_in_time(farm: Enrolling) -> None:
    invitation = farm.invite()
    farm.enrol(invitation)
    for bad in (invitation, farm.invite("rack-2", timedelta(seconds=-1)), f"nonsense.{FARM.public.key_id}"):
        answer = farm.client.post("/enrol", json=Applicant.new().ask(bad))
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
