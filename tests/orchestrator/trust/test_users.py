"""Users' tokens on each engine, at the real endpoint: who gets in, with what right, and for how long."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from agent.wire.credentials import digest
from orchestrator.config.address import Address
from orchestrator.endpoint.access import AgentRegistry
from orchestrator.errors import UsageError
from orchestrator.policy.rights import Scope, User, read_scopes
from orchestrator.trust.farm_key_rotation import FarmKeyFolder
from orchestrator.trust.users import AUTHORITY_DIGITS, Users, authority_id
from tests.services.certificates import Authority
from tests.services.endpoint import READ_TOKEN, SUBMIT_TOKEN, Endpoint

ADDRESS = Address("http://127.0.0.1:8460", "127.0.0.1", 8460)


@pytest.fixture(params=["sqlite", "postgresql"])
def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Endpoint]:
    url = request.getfixturevalue("migrated_postgres_url") if request.param == "postgresql" else None
    opened = Endpoint(tmp_path / "endpoint", database_url=url)
    keys = FarmKeyFolder(tmp_path / "keys")
    opened.trust.records = AgentRegistry(opened.database, ADDRESS, keys.keys, lambda _: {})
    yield opened
    opened.close()


def answer(endpoint: Endpoint, token: str, method: str = "GET", path: str = "/campaigns") -> httpx.Response:
    headers = {"authorization": f"Bearer {token}"}
    return httpx.request(method, endpoint.url + path, headers=headers, trust_env=False)


def test_a_user_gets_in_by_scope_until_the_token_is_over(endpoint: Endpoint, caplog) -> None:
    users = Users(endpoint.database)
    model = f"/models/{endpoint.store.put(io.BytesIO(b'model'), 'm').sha256}"
    ana = users.add("ana")
    reader = users.add("reader", [Scope.READ])
    sender = users.add("sender", [Scope.SUBMIT], valid=timedelta(days=1))
    admin = users.add("admin", [Scope.ADMIN])
    late = users.add("late", valid=timedelta(seconds=-1))
    statuses = {
        name: (answer(endpoint, token).status_code, answer(endpoint, token, "HEAD", model).status_code)
        for name, token in (("ana", ana), ("reader", reader), ("sender", sender), ("admin", admin))
    }
    assert statuses == {"ana": (200, 200), "reader": (200, 403), "sender": (403, 200), "admin": (200, 200)}
    assert answer(endpoint, READ_TOKEN).status_code == 200, "the farm's own tokens stay good"
    assert answer(endpoint, SUBMIT_TOKEN, "HEAD", model).status_code == 200

    lacking = answer(endpoint, sender).json()["error"]
    assert "the token of user sender may not do that: it needs scope read, it has submit" in lacking
    expired = answer(endpoint, late)
    assert (expired.status_code, "user late expired at" in expired.json()["error"]) == (401, True)
    again = users.add("ana", replace=True)
    over = answer(endpoint, ana)
    assert (over.status_code, "the token of user ana was revoked" in over.json()["error"]) == (401, True)
    assert answer(endpoint, again).status_code == 200
    users.revoke("ana")
    assert answer(endpoint, again).status_code == 401

    for invented in (reader[:-1], f"nobody.{reader.partition('.')[2]}", "ana.", f"reader.{reader}"):
        assert answer(endpoint, invented).status_code == 401
        assert "revoked" not in answer(endpoint, invented).text, "nothing is told of tokens that are guessed"
    tokens = [ana, reader, sender, admin, late, again]
    assert not any(token in caplog.text or token.split(".")[1] in caplog.text for token in tokens)
    with endpoint.database.read() as session:
        stored = str(session.connection().execute(text("SELECT * FROM user_token")).fetchall())
    assert all(digest(token) in stored and token.split(".")[1] not in stored for token in tokens)


def test_a_user_has_one_token_at_a_time(endpoint: Endpoint) -> None:
    users = Users(endpoint.database)
    users.add("ana", [Scope.READ])
    with pytest.raises(UsageError, match=r"user ana has a token.*farm lab users add ana --replace"):
        users.add("ana")
    users.revoke("ana")
    token = users.add("ana", [Scope.SUBMIT])
    assert users.with_token(token) == User("ana", frozenset({Scope.SUBMIT}))
    (listed,) = users.listed()
    assert (listed.name, listed.scopes, listed.revoked_at) == ("ana", ("submit",), None)
    with pytest.raises(UsageError, match="no user 'bob'; known: ana"):
        users.revoke("bob")


@pytest.mark.parametrize("name", ["", "Ana", "a.b", "-a", "a" * 64, "a b", "ä"])
def test_a_name_that_a_token_cannot_begin_with_is_refused(database, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a user's name"):
        Users(database).add(name)


def test_scopes_are_read_by_their_names() -> None:
    assert read_scopes([" read", "submit", "read"]) == (Scope.READ, Scope.SUBMIT)
    with pytest.raises(UsageError, match="unknown scope 'write'; known: read, submit, cancel-own, admin"):
        read_scopes(["read", "write"])


def test_a_token_names_the_labs_own_authority(database, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    address = Address("https://127.0.0.1:8460", "127.0.0.1", 8460, authority=authority.path)
    _, _, named = Users(database).add("ana", address=address).split(".")
    assert (named, len(named)) == (authority_id(authority.path.read_text()), AUTHORITY_DIGITS)
