"""An agent's credentials are complete, and from the farm that made its one-time token."""

from __future__ import annotations

import os
import tracemalloc

import pytest

from agent.wire.credentials import FILE, Applicant, Credentials, digest, farm_of
from agent.wire.envelope import SigningKey, check_proof

FARM = SigningKey.new().public
TOKEN = f"secret.{FARM.key_id}"
GRANTED = {
    "agent_id": "rack",
    "broker_url": "rediss://lab:6380/0",
    "broker_user": "farm:agent.rack",
    "key_prefix": "farm:",
    "farm_key": FARM.text,
}
APPLICANT = Applicant.new()


def values(**changed: object) -> dict[str, object]:
    return {**APPLICANT.accept(TOKEN, GRANTED).values(), **changed}


def test_an_answer_of_the_farm_that_made_the_token_becomes_credentials():
    found = APPLICANT.accept(TOKEN, GRANTED)
    assert (found.agent_id, found.farm_key, found.token) == ("rack", FARM.text, APPLICANT.token)
    assert (found.endpoint, found.endpoint_ca, found.broker_ca) == (None, None, None)
    assert Credentials.of(found.values()) == found


def test_an_answer_of_another_farm_is_not_trusted():
    for other in (SigningKey.new().public.key_id, FARM.key_id[::-1]):
        with pytest.raises(ValueError, match="another farm answered"):
            APPLICANT.accept(f"secret.{other}", GRANTED)


@pytest.mark.parametrize("name", GRANTED)
@pytest.mark.parametrize("value", [None, 7])
def test_an_answer_that_lacks_something_is_refused(name, value):
    with pytest.raises(ValueError, match=f"lacks {name}"):
        APPLICANT.accept(TOKEN, {**GRANTED, name: value})


@pytest.mark.parametrize(
    "token",
    ["", "secret", FARM.key_id, f".{FARM.key_id}", "secret.short", "a.b."],
    ids=["empty", "no id", "no secret", "an empty secret", "a short id", "no id after a point"],
)
def test_what_is_no_one_time_token_is_said(token):
    with pytest.raises(ValueError, match="not a token"):
        farm_of(token)


@pytest.mark.parametrize("name", ["agent_id", "broker_url", "key_prefix", "signing_key", "farm_key", "token"])
@pytest.mark.parametrize("value", [None, 7])
def test_credentials_that_lack_something_are_refused_with_its_name(name, value):
    with pytest.raises(ValueError, match=f"{name} is not text"):
        Credentials.of(values(**{name: value}))


def test_a_file_that_is_far_too_long_is_no_json_and_not_read_to_its_end(tmp_path):
    (tmp_path / FILE).touch()
    os.truncate(tmp_path / FILE, 1 << 26)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="is not JSON"):
            Credentials.read(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["endpoint", "endpoint_ca", "broker_ca"])
def test_what_an_agent_may_lack_is_text_where_it_is_there(name):
    assert getattr(Credentials.of(values(**{name: "text"})), name) == "text"
    with pytest.raises(ValueError, match=f"{name} is not text"):
        Credentials.of(values(**{name: 7}))


@pytest.mark.parametrize("name", ["signing_key", "farm_key"])
def test_a_key_that_is_none_is_noticed_when_credentials_are_read(name):
    with pytest.raises(ValueError, match="key"):
        Credentials.of(values(**{name: "x" * 43}))


def test_a_request_holds_no_secret_but_the_one_time_token():
    request = APPLICANT.request(TOKEN)
    check_proof(APPLICANT.key.public, TOKEN, request["proof"])
    assert (request["token"], request["token_sha256"]) == (TOKEN, digest(APPLICANT.token))
    for secret in (APPLICANT.token, APPLICANT.password, APPLICANT.key.secret()):
        assert secret not in request.values()
        assert secret not in repr(APPLICANT)
