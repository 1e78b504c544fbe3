"""Whatever is asked for, the answer is a refusal, and the log has neither SQL nor a traceback."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import DataError

from agent.wire.envelope import SigningKey
from orchestrator.config.address import Address
from orchestrator.endpoint.access import AgentRegistry
from orchestrator.trust.farm_key_rotation import FarmKeys
from tests.services.endpoint import READ_TOKEN, SUBMIT_TOKEN, TOKEN, Endpoint
from tests.services.postgres import PostgresCluster

ODD = {
    "NUL": "%00",
    "NUL within": "a%00b",
    "a line end": "a%0d%0ab",
    "half a character": "%ed%a0%80",
    "not UTF-8": "%ff%fe",
    "not an escape": "%zz%",
    "a slash": "a%2fb",
    "a way up": "..%2f..%2fetc%2fpasswd",
    "right to left": "%e2%80%ae",
    "beyond the plane": "%f0%9f%a6%8a",
    "a quote": "'%20or%201=1--",
    "a wildcard": "%25%25_",
    "long": "x" * 5000,
}
PLACES = (
    ("GET", "/campaigns/{}", READ_TOKEN),
    ("GET", "/campaigns/{}/results", READ_TOKEN),
    ("GET", "/campaigns/{}/results?limit=%00&{}", READ_TOKEN),
    ("GET", "/samples/{}", READ_TOKEN),
    ("HEAD", "/samples/{}", TOKEN),
    ("GET", "/artifacts/{}", TOKEN),
    ("HEAD", "/models/{}", SUBMIT_TOKEN),
    ("GET", "/{}", READ_TOKEN),
)
SHA = "0" * 64


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def endpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    url = None
    if request.param == "postgresql":
        cluster: PostgresCluster = request.getfixturevalue("postgres")
        url = cluster.socket_url(cluster.new_database())
    opened = Endpoint(tmp_path_factory.mktemp("farm"), database_url=url)
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _all_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def is_clean(caplog: pytest.LogCaptureFixture) -> bool:
    """Whether the farm logged nothing but whole lines without SQL."""
    said = [record for record in caplog.records if record.name != "httpx"]
    return not any(
        record.exc_info or "\n" in record.getMessage() or "SELECT" in record.getMessage() for record in said
    )


@pytest.mark.parametrize("name", ODD.values(), ids=ODD)
def test_a_name_that_none_has_is_refused_as_such(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    for method, place, token in PLACES:
        with socket.create_connection(("127.0.0.1", endpoint.port), 30) as line:
            target = place.format(name, name)
            line.sendall(
                f"{method} {target} HTTP/1.1\r\nhost: farm\r\nauthorization: Bearer {token}\r\n"
                "connection: close\r\n\r\n".encode()
            )
            answer = b"".join(iter(lambda: line.recv(1 << 16), b""))  # read within the round
        status = int(answer.split(b" ", 2)[1])
        assert 400 <= status < 405, (method, target, answer)
    assert is_clean(caplog)


@pytest.mark.parametrize(
    "fault", [DataError("SELECT secret", {"a": 1}, ValueError("x")), RuntimeError("a\nb")]
)
def test_a_fault_of_the_farm_is_one_line_of_its_log_with_the_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: Exception
) -> None:
    class Faulty:
        def agent_of(self, _: str) -> NoReturn:
            raise fault

    opened = Endpoint(tmp_path)
    opened.trust.records = Faulty()  # type: ignore[assignment]  # what the request needs of it
    try:
        answer = httpx.get(
            f"{opened.url}/artifacts/{SHA}", headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False
        )
    finally:
        opened.close()
    assert (answer.status_code, answer.json()) == (500, {"error": "the farm failed; see its log"})
    assert is_clean(caplog)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert type(fault).__name__ in line
    assert "test_odd_requests.py:" in line


TEXT = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40)
SEGMENT = st.one_of(
    st.sampled_from([*ODD.values(), SHA, "results"]),
    st.binary(max_size=12).map(lambda raw: "".join(f"%{byte:02x}" for byte in raw)),
    TEXT,
)
ROUTES = ("health", "enrol", "artifacts", "samples", "models", "campaigns", "")
TARGET = st.builds(
    lambda first, rest: "/" + "/".join([first, *rest]), st.sampled_from(ROUTES), st.lists(SEGMENT, max_size=3)
)
HEADER = st.tuples(
    st.sampled_from(
        [
            "authorization",
            "range",
            "content-range",
            "content-length",
            "transfer-encoding",
            "expect",
            "upgrade",
            "x",
        ]
    ),
    st.one_of(
        TEXT, TEXT.map("Bearer {}".format), st.sampled_from(["chunked", "0", "-1", "9" * 30, "websocket"])
    ),
)
BODY = st.one_of(
    st.binary(max_size=200),
    st.dictionaries(
        st.sampled_from(["token", "public_key", "token_sha256", "password_sha256", "proof"]),
        st.sampled_from(['"\\ud800"', '"\\u0000"', "1e999", '"' + "0" * 64 + '"', "null", '"x.y"']),
    ).map(lambda fields: ("{" + ",".join(f'"{k}":{v}' for k, v in fields.items()) + "}").encode()),
)


@pytest.fixture(scope="module")
def strict(endpoint: Endpoint) -> Endpoint:
    """Start an endpoint that knows agents by the database alone."""
    address = Address(endpoint.url, "127.0.0.1", endpoint.port)
    key = SigningKey.new()
    endpoint.trust.records = AgentRegistry(endpoint.database, address, lambda: FarmKeys(key), lambda _: {})
    return endpoint


@given(
    method=st.sampled_from(["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "TRACE", "CONNECT", "X"]),
    target=TARGET,
    headers=st.lists(HEADER, max_size=4),
    body=BODY,
    rest=st.binary(max_size=60),
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_no_request_without_a_token_is_a_fault_of_the_farm(
    strict: Endpoint,
    caplog: pytest.LogCaptureFixture,
    method: str,
    target: str,
    headers: list[tuple[str, str]],
    body: bytes,
    rest: bytes,
) -> None:
    lines = [f"{method} {target} HTTP/1.1", "host: farm", *(f"{name}: {text}" for name, text in headers)]
    if not any(name in ("content-length", "transfer-encoding") for name, _ in headers):
        lines.append(f"content-length: {len(body)}")
    with socket.create_connection(("127.0.0.1", strict.port), 30) as line:
        line.sendall("\r\n".join([*lines, "", ""]).encode() + body + rest)
        line.shutdown(socket.SHUT_WR)
        try:
            answer = b"".join(iter(lambda: line.recv(1 << 16), b""))
        except ConnectionError:  # refused before all of it was read
            answer = b""
    if answer:
        status = int(answer.split(b" ", 2)[1])
        assert status == 100 or 200 <= status < 500, answer
        assert status != 200 or target == "/health", answer
    assert is_clean(caplog)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_the_health_of_the_farm_is_told_after_all_of_this(strict: Endpoint) -> None:
    assert httpx.get(f"{strict.url}/health", trust_env=False).status_code == 200
