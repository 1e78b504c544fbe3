"""`farm lab agents enrol` and `farm lab agents rotate` print one form for a script and one for a person."""

from __future__ import annotations

import pytest

from agent.wire.credentials import Applicant
from orchestrator.config.clock import utc_now
from orchestrator.config.home import FarmHome
from orchestrator.db.engine.sessions import Database
from orchestrator.trust import enrolment

ENDPOINT = "https://lab.example.org:8460"


@pytest.fixture
def lab(shell, monkeypatch):
    monkeypatch.setenv("FARM_BROKER_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("FARM_ENDPOINT", ENDPOINT)
    monkeypatch.setenv("FARM_TLS_CERT", "cert.pem")
    monkeypatch.setenv("FARM_TLS_KEY", "key.pem")
    return shell


@pytest.mark.parametrize("verb", ["enrol", "rotate"])
def test_standard_output_is_the_token_alone(lab, verb) -> None:
    if verb == "rotate":
        enrol(lab, lab.farm("lab", "agents", "enrol", "rack-1").out.strip())
    ran = lab.farm("lab", "agents", verb, "rack-1")
    token = ran.out.removesuffix("\n")
    assert (ran.code, token.split()) == (0, [token])
    assert token not in ran.err, "a log of standard error tells no secret"
    assert f"farm-agent enrol --server {ENDPOINT}" in ran.err
    assert enrol(lab, token) == "rack-1"
    assert set(lab.farm("lab", "agents", "rotate", "rack-1", "--json").json()) == {
        "agent", "token", "server", "valid_minutes",
    }  # fmt: skip


def enrol(lab, token: str) -> str:
    """Use a token as the endpoint does for an agent that sends it."""
    database = Database.connect(FarmHome(lab.home).database)
    request = enrolment.Request.read(Applicant.new().request(token))
    with database.write() as turn:
        name = enrolment.enrol(turn, request, utc_now())
    database.close()
    return name


def test_the_line_that_sets_up_a_users_machine_is_standard_output_alone(lab) -> None:
    ran = lab.farm("lab", "users", "add", "ana", "--scope", "read", "--expires", "90d")
    assert ran.code == 0, ran.err
    line = ran.out.removesuffix("\n")
    assert line.startswith(f"export FARM_URL={ENDPOINT} FARM_TOKEN=ana.")
    assert line.partition("ana.")[2] not in ran.err
    again = lab.farm("lab", "users", "add", "ana")
    assert (again.code, "user ana has a token" in again.err) == (2, True)
    (listed,) = lab.farm("lab", "users", "list", "--json").json()
    assert (listed["user"], listed["scopes"], listed["state"]) == ("ana", ["read"], "valid")
    assert lab.farm("lab", "users", "revoke", "ana").out == "the token of ana is revoked\n"
    assert "revoked" in lab.farm("lab", "users", "list").out
    assert lab.farm("lab", "users", "add", "ana", "--expires", "soon").code == 2
