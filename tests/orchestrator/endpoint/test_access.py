"""Who is let in with which token: the gate in front of the farm's real registry of agents."""

from __future__ import annotations

import asyncio
import hmac
from datetime import UTC, datetime

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from agent.wire.credentials import Applicant
from orchestrator.config.address import Address
from orchestrator.endpoint import access
from orchestrator.endpoint.access import LONGEST_TOKEN, AgentRegistry, Gate
from orchestrator.policy.rights import Scope
from orchestrator.trust import enrolment
from orchestrator.trust.farm_key_rotation import FarmKeyFolder
from orchestrator.trust.users import Users
from tests.orchestrator.asked import GPU, asked
from tests.orchestrator.stocked import cells, dispatch, report_devices, stock

READ, SUBMIT = "r" * 40, "s" * LONGEST_TOKEN


@pytest.fixture
def registry(tmp_path, database):
    keys = FarmKeyFolder(tmp_path / "keys")
    return AgentRegistry(
        database, Address("http://127.0.0.1:8460", "127.0.0.1", 8460), keys.keys, lambda _: {}
    )


@pytest.fixture
def gate(registry):
    return Gate(registry, READ, SUBMIT)


def enrolled(registry, name: str) -> str:
    """Enrol an agent; returns its token."""
    applicant = Applicant.new()
    with registry.database.write() as turn:
        now = datetime.now(UTC)
        invitation = enrolment.invite(turn, name, registry.farm_keys().current.public.key_id, now)
    registry.enrol(applicant.request(invitation))
    return applicant.token


class Connection:
    """Notes for whom the gate vouched."""

    def __init__(self) -> None:
        self.owners: list[str] = []

    def vouch(self, owner: str) -> None:
        self.owners.append(owner)


def with_header(text: str | None) -> Request:
    headers = [] if text is None else [(b"authorization", text.encode())]
    state = {"connection": Connection()}
    return Request({"type": "http", "method": "GET", "path": "/", "headers": headers, "state": state})


def owners(request: Request) -> list[str]:
    return request.scope["state"]["connection"].owners


def bearer(token: str) -> Request:
    return with_header(f"Bearer {token}")


def refusal(ask) -> int:
    with pytest.raises(HTTPException) as caught:
        asyncio.run(ask)
    return caught.value.status_code


def test_a_refused_token_vouches_for_no_connection(registry, gate):
    for door in (gate.reader, gate.submitter, gate.agent):
        request = bearer("invented")
        assert refusal(door(request)) == 401
        assert owners(request) == []


def test_each_token_opens_its_own_gate_and_no_other(registry, gate):
    agent = enrolled(registry, "rack")
    asks = bearer(READ), bearer(SUBMIT), bearer(agent)
    asyncio.run(gate.reader(asks[0]))
    asyncio.run(gate.submitter(asks[1]))
    assert asyncio.run(gate.agent(asks[2])) == "rack"
    assert [owners(ask) for ask in asks] == [["the read token"], ["the submit token"], ["agent rack"]]
    for door, tokens in (
        (gate.reader, (SUBMIT, agent)),
        (gate.submitter, (READ, agent)),
        (gate.agent, (READ, SUBMIT, agent[:-1])),
    ):
        assert [refusal(door(bearer(token))) for token in tokens] == [401] * len(tokens)


def test_a_user_sends_models_only_with_the_scope_for_it(gate, database):
    tokens = {scope: Users(database).add(scope.value, (scope,)) for scope in (Scope.READ, Scope.SUBMIT)}
    assert refusal(gate.submitter(bearer(tokens[Scope.READ]))) == 403
    ask = bearer(tokens[Scope.SUBMIT])
    assert asyncio.run(gate.submitter(ask)) == "user submit"
    assert owners(ask) == ["user submit"]


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Bearer  ", f"Basic {READ}", READ])
def test_without_a_bearer_token_nobody_gets_in(gate, header):
    for door in (gate.reader, gate.submitter, gate.agent):
        assert refusal(door(with_header(header))) == 401


def test_a_gate_without_a_token_is_shut_for_everybody(registry):
    shut = Gate(registry)
    assert refusal(shut.reader(bearer("None"))) == 403
    assert refusal(shut.submitter(bearer("None"))) == 403


def test_a_token_beyond_the_limit_is_refused_before_anything_is_done_with_it(gate, monkeypatch):
    hashed = []
    monkeypatch.setattr(access, "_digest", lambda token: hashed.append(token) or b"")
    assert refusal(gate.reader(bearer("x" * (LONGEST_TOKEN + 1)))) == 401
    assert hashed == []


def test_an_empty_token_is_refused_before_anybody_is_asked_about_it(registry, gate, monkeypatch):
    asked_about = []
    monkeypatch.setattr(AgentRegistry, "agent_of", lambda _self, token: asked_about.append(token))
    assert refusal(gate.agent(with_header("Bearer "))) == 401
    assert asked_about == []


def test_tokens_are_compared_in_a_time_that_tells_nothing(gate, monkeypatch):
    compare, compared = hmac.compare_digest, []

    def followed(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", followed)
    asyncio.run(gate.reader(bearer(READ)))
    assert refusal(gate.reader(bearer("r"))) == 401
    assert compared == [(32, 32), (32, 32)]


def test_an_agent_fetches_what_its_own_attempts_use_while_they_run(registry, gate, database):
    device = GPU.model_copy(update={"device_id": "rack.gpu-0"})
    stock(database, asked(delegates={"gpu": {}}), [device])
    own, other = enrolled(registry, "embedded"), enrolled(registry, "other")
    report_devices(database, [device])
    cell = cells(database)[0]
    assert refusal(gate.fetcher(bearer(own), cell.model_sha256)) == 403
    dispatch(database, cell.cell_id)
    asyncio.run(gate.fetcher(bearer(own), cell.model_sha256))
    assert refusal(gate.fetcher(bearer(own), "0" * 64)) == 403
    assert refusal(gate.fetcher(bearer(other), cell.model_sha256)) == 403
    assert refusal(gate.fetcher(bearer("stranger"), cell.model_sha256)) == 401
