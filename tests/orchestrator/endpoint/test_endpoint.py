"""The farm over HTTP: who gets in, what goes out, and what is not taken."""

from __future__ import annotations

import hashlib
import io
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from agent.wire.labelled import LabelledScore
from orchestrator.config.address import Address
from orchestrator.config.limits import StoreLimits
from orchestrator.db.results.records import campaigns
from orchestrator.db.scheduling import ingest
from orchestrator.doctor.examine import endpoint_check
from orchestrator.endpoint.server import EndpointServer
from orchestrator.endpoint.user_client import UserClient
from orchestrator.errors import FarmError, UnreachableError
from orchestrator.results.export import campaign_json
from tests.orchestrator.stocked import cells, dispatch, result, stock
from tests.services.certificates import Authority
from tests.services.endpoint import READ_TOKEN, TOKEN, Endpoint

CONTENT = bytes(range(256)) * 1000
SHA = hashlib.sha256(CONTENT).hexdigest()
SAMPLES = b"[1, 2, 3]"
SAMPLES_SHA = hashlib.sha256(SAMPLES).hexdigest()


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    opened = Endpoint(tmp_path, StoreLimits(samples_bytes=1000))
    opened.store.put(io.BytesIO(CONTENT), "m")
    yield opened
    opened.close()


@pytest.fixture
def agent(endpoint: Endpoint) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=endpoint.url, headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False
    ) as client:
        yield client


@pytest.fixture
def reader(endpoint: Endpoint) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=endpoint.url, headers={"authorization": f"Bearer {READ_TOKEN}"}, trust_env=False
    ) as client:
        yield client


def test_a_model_comes_whole_or_from_a_byte_on(agent: httpx.Client) -> None:
    whole = agent.get(f"/artifacts/{SHA}")
    assert (whole.status_code, whole.content) == (200, CONTENT)
    assert whole.headers["etag"] == f'"{SHA}"'
    rest = agent.get(f"/artifacts/{SHA}", headers={"range": "bytes=255990-"})
    assert (rest.status_code, rest.content) == (206, CONTENT[255990:])
    assert rest.headers["content-range"] == "bytes 255990-255999/256000"
    head = agent.head(f"/artifacts/{SHA}")
    assert (head.status_code, head.headers["content-length"], head.content) == (200, "256000", b"")


@pytest.mark.parametrize(
    ("asked", "status", "start", "end"),
    [
        ("bytes=0-0", 206, 0, 1),
        ("bytes=-5", 206, 255995, 256000),
        ("bytes=10-999999", 206, 10, 256000),
        ("bytes=-999999", 206, 0, 256000),
        ("bytes=256000-", 416, None, None),
        ("bytes=-0", 416, None, None),
        ("bytes=9-3", 200, 0, 256000),
        ("bytes=0-1,5-6", 200, 0, 256000),
        ("bytes=-", 200, 0, 256000),
        ("lines=0-1", 200, 0, 256000),
        ("bytes=" + "9" * 30 + "-", 200, 0, 256000),
    ],
)
def test_a_range_is_one_range_or_the_whole_file(
    agent: httpx.Client, asked: str, status: int, start: int | None, end: int | None
) -> None:
    answer = agent.get(f"/artifacts/{SHA}", headers={"range": asked})
    assert answer.status_code == status
    if start is not None:
        assert answer.content == CONTENT[start:end]
    else:
        assert answer.headers["content-range"] == "bytes */256000"


@pytest.mark.parametrize("name", ["0" * 63, "A" * 64, "x", "..%2f..%2fetc%2fpasswd", "%2e%2e"])
def test_only_a_sha256_names_an_artifact(agent: httpx.Client, name: str) -> None:
    assert agent.get(f"/artifacts/{name}").status_code in (400, 404)
    assert agent.put(f"/samples/{name}", content=SAMPLES).status_code in (404, 405, 422)


def test_what_the_farm_lacks_is_not_found_and_a_link_is_not_followed(
    agent: httpx.Client, endpoint: Endpoint
) -> None:
    assert agent.get(f"/artifacts/{'0' * 64}").status_code == 404
    link = endpoint.store.root / "sha256" / "11" / ("1" * 64)
    link.parent.mkdir(parents=True)
    link.symlink_to("/etc/hostname")
    assert agent.get(f"/artifacts/{'1' * 64}").status_code == 404


def test_samples_are_taken_once_and_again(agent: httpx.Client, endpoint: Endpoint) -> None:
    assert agent.head(f"/samples/{SAMPLES_SHA}").status_code == 404
    for _ in range(2):
        answer = agent.put(f"/samples/{SAMPLES_SHA}", content=SAMPLES)
        assert (answer.status_code, answer.json()["bytes"]) == (201, len(SAMPLES))
    assert agent.head(f"/samples/{SAMPLES_SHA}").status_code == 200
    assert endpoint.store.path(SAMPLES_SHA).read_bytes() == SAMPLES


def test_samples_in_pieces_of_unknown_number_have_the_same_cap(
    agent: httpx.Client, endpoint: Endpoint
) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * 400

    with suppress(httpx.TransportError):
        assert agent.put(f"/samples/{SAMPLES_SHA}", content=endless()).status_code == 413
    assert agent.put(f"/samples/{SAMPLES_SHA}", content=iter([SAMPLES[:4], SAMPLES[4:]])).status_code == 201
    assert [p.name for p in (endpoint.store.root / "incoming").iterdir()] == []


def test_samples_that_are_not_what_their_name_says_or_too_large_leave_nothing(
    agent: httpx.Client, endpoint: Endpoint
) -> None:
    wrong = agent.put(f"/samples/{SAMPLES_SHA}", content=b"others")
    assert wrong.status_code == 422
    assert "wrong sha256" in wrong.json()["error"]
    assert agent.put(f"/samples/{SAMPLES_SHA}", content=b"x" * 1001).status_code == 413
    assert endpoint.store.find(SAMPLES_SHA) is None
    assert list((endpoint.store.root / "incoming").iterdir()) == []


def test_samples_that_are_announced_as_too_large_are_refused_before_they_come(endpoint: Endpoint) -> None:
    with socket.create_connection(("127.0.0.1", endpoint.port), timeout=15.0) as raw:
        raw.sendall(
            f"PUT /samples/{SAMPLES_SHA} HTTP/1.1\r\nhost: farm\r\nauthorization: Bearer {TOKEN}\r\n"
            "content-length: 1001\r\n\r\n".encode()
        )
        assert raw.recv(1 << 16).startswith(b"HTTP/1.1 413")


def test_a_sender_that_hangs_up_leaves_nothing(agent: httpx.Client, endpoint: Endpoint) -> None:
    with socket.create_connection(("127.0.0.1", endpoint.port)) as raw:
        raw.sendall(
            f"PUT /samples/{SAMPLES_SHA} HTTP/1.1\r\nhost: farm\r\nauthorization: Bearer {TOKEN}\r\n"
            f"content-length: {len(SAMPLES)}\r\n\r\n[1,".encode()
        )
    assert agent.put(f"/samples/{SAMPLES_SHA}", content=SAMPLES).status_code == 201
    assert endpoint.store.path(SAMPLES_SHA).read_bytes() == SAMPLES


def test_slow_senders_keep_nobody_else_waiting(agent: httpx.Client, endpoint: Endpoint) -> None:
    head = (
        f"PUT /samples/{SAMPLES_SHA} HTTP/1.1\r\nhost: farm\r\nauthorization: Bearer {TOKEN}\r\n"
        f"content-length: {len(SAMPLES)}\r\n\r\n["
    )
    with ExitStack() as senders:
        for _ in range(60):
            raw = senders.enter_context(socket.create_connection(("127.0.0.1", endpoint.port)))
            raw.sendall(head.encode())
        for _ in range(20):
            assert agent.get(f"/artifacts/{SHA}").status_code == 200
    assert agent.put(f"/samples/{SAMPLES_SHA}", content=SAMPLES).status_code == 201


def test_a_full_disk_takes_no_samples_and_says_the_figures(tmp_path: Path) -> None:
    full = Endpoint(tmp_path / "full", StoreLimits(free_bytes=1 << 50))
    try:
        answer = httpx.put(
            f"{full.url}/samples/{SAMPLES_SHA}",
            content=SAMPLES,
            headers={"authorization": f"Bearer {TOKEN}"},
            trust_env=False,
        )
        assert answer.status_code == 507
        assert "are kept free" in answer.json()["error"]
    finally:
        full.close()


@pytest.mark.parametrize(
    "header", [None, "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"bearer {TOKEN}x", "Bearer " + "x" * 600]
)
def test_nobody_gets_in_without_the_token(endpoint: Endpoint, header: str | None) -> None:
    headers = {} if header is None else {"authorization": header}
    with httpx.Client(base_url=endpoint.url, headers=headers, trust_env=False) as stranger:
        for method, path in (
            ("GET", f"/artifacts/{SHA}"),
            ("HEAD", f"/artifacts/{SHA}"),
            ("PUT", f"/samples/{SHA}"),
            ("HEAD", f"/samples/{SHA}"),
            ("GET", "/campaigns"),
            ("GET", "/campaigns/x"),
            ("GET", "/campaigns/x/results"),
        ):
            answer = stranger.request(method, path)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"] == "Bearer"


def test_a_readers_token_is_no_agents_and_the_reverse(agent: httpx.Client, reader: httpx.Client) -> None:
    assert reader.get(f"/artifacts/{SHA}").status_code == 401
    assert agent.get("/campaigns").status_code == 401


def test_a_revoked_token_is_refused_at_once(agent: httpx.Client, endpoint: Endpoint) -> None:
    assert agent.get(f"/artifacts/{SHA}").status_code == 200
    endpoint.trust.tokens.clear()
    assert agent.get(f"/artifacts/{SHA}").status_code == 401


def test_enrolment_passes_a_flat_object_on_and_nothing_else(endpoint: Endpoint) -> None:
    url = f"{endpoint.url}/enrol"
    granted = httpx.post(url, json={"token": "once", "public_key": "k"}, trust_env=False)
    assert granted.json()["agent_id"] == "rack-2"
    assert granted.headers["cache-control"] == "no-store"
    assert endpoint.trust.asked == [{"token": "once", "public_key": "k"}]
    refused = httpx.post(url, json={"token": "twice"}, trust_env=False)
    assert (refused.status_code, refused.json()) == (403, {"error": "this token was used or is none"})
    deep = "[" * 8000
    for body in (b"", b"\xff", b"[]", b'{"token": {"a": 1}}', deep.encode()):
        assert httpx.post(url, content=body, trust_env=False).status_code == 400
    assert httpx.post(url, content=b" " * 20_000, trust_env=False).status_code == 413
    assert len(endpoint.trust.asked) == 2


def test_campaigns_and_results_are_read_as_json(reader: httpx.Client, endpoint: Endpoint) -> None:
    campaign_id = stock(endpoint.database)
    (listed,) = reader.get("/campaigns").json()
    assert listed["campaign_id"] == campaign_id
    with endpoint.database.read() as session:
        assert [listed] == [campaign_json(record) for record in campaigns(session)]
    assert reader.get(f"/campaigns/{campaign_id}").json() == listed
    cells = json.loads(reader.get(f"/campaigns/{listed['name']}/results").content)
    assert {cell["status"] for cell in cells} == {"queued"}
    assert reader.get("/campaigns/none").status_code == 404


def test_only_the_documented_paths_and_methods_answer(endpoint: Endpoint) -> None:
    assert httpx.get(f"{endpoint.url}/health", trust_env=False).json()["farm"] == "well"
    assert httpx.get(f"{endpoint.url}/docs", trust_env=False).status_code == 404
    assert httpx.post(f"{endpoint.url}/health", trust_env=False).status_code == 405


def test_tls_is_spoken_with_the_farms_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    endpoint = Endpoint(tmp_path, tls=authority.issue())
    try:
        trusting = ssl.create_default_context(cafile=authority.path)
        assert httpx.get(f"{endpoint.url}/health", verify=trusting, trust_env=False).status_code == 200
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{endpoint.url}/health", trust_env=False)
    finally:
        endpoint.close()


def test_a_taken_port_and_a_bad_certificate_are_one_clear_line(endpoint: Endpoint, tmp_path: Path) -> None:
    with pytest.raises(FarmError, match=f"cannot listen on 127.0.0.1:{endpoint.port}.*FARM_LISTEN"):
        EndpointServer(Starlette(), Address("http://127.0.0.1", "127.0.0.1", endpoint.port))
    (tmp_path / "bad.pem").write_text("nothing")
    with pytest.raises(FarmError, match="FARM_TLS_CERT"):
        EndpointServer(
            Starlette(), Address("https://x", "127.0.0.1", 0, tmp_path / "bad.pem", tmp_path / "bad.pem")
        )


def test_plain_http_off_the_loopback_is_warned_of_loudly(caplog: pytest.LogCaptureFixture) -> None:
    with EndpointServer(Starlette(), Address("http://lab", "0.0.0.0", 0)):
        pass
    assert "TOKENS CROSS THE NETWORK IN THE CLEAR" in caplog.text


def test_an_expired_certificate_is_one_line_for_a_user_and_for_the_doctor(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    stale = Endpoint(tmp_path / "stale", tls=authority.issue(ended=timedelta(hours=1)))
    try:
        asked = Address(stale.url, "127.0.0.1", 0, authority=authority.path)
        check = endpoint_check(asked)
        with pytest.raises(UnreachableError) as told:
            UserClient(asked, "ana.secret").call("reading.campaigns", b"{}")
    finally:
        stale.close()
    assert (check.ok, "certificate has expired" in check.found, bool(check.fix)) == (False, True, True)
    assert "certificate has expired" in str(told.value)
    assert (str(told.value).count("\n"), stale.url in str(told.value)) == (0, True)


def test_the_doctor_asks_the_endpoint_as_an_agent_would(endpoint: Endpoint, tmp_path: Path) -> None:
    asked = Address(endpoint.url, "127.0.0.1", endpoint.port)
    assert endpoint_check(asked).ok
    open_to_all = endpoint_check(replace(asked, host="0.0.0.0"))
    assert (open_to_all.ok, "in the clear" in open_to_all.found) == (False, True)
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "a stranger")
    safe = Endpoint(tmp_path / "safe", tls=authority.issue())
    try:
        trusted = endpoint_check(Address(safe.url, "127.0.0.1", 0, authority=authority.path))
        assert (trusted.ok, "ends 20" in trusted.found) == (False, True)
        assert "TLS fails" in endpoint_check(Address(safe.url, "127.0.0.1", 0, authority=stranger.path)).found
    finally:
        safe.close()
    assert "does not answer" in endpoint_check(Address(safe.url, "127.0.0.1", 0)).found


def test_readers_see_samples_that_a_result_names_and_nothing_else(
    endpoint: Endpoint, agent: httpx.Client, reader: httpx.Client
) -> None:
    stock(endpoint.database)
    (cell,) = cells(endpoint.database)
    job = dispatch(endpoint.database, cell.cell_id)
    found = result(job)
    assert found.measurement is not None
    answers = endpoint.store.put(io.BytesIO(b"answers"), "a").sha256
    score = LabelledScore(metric="top1", samples=1, right=1, share=1.0, answers_sha256=answers)
    measured = found.measurement.model_copy(update={"samples_sha256": SAMPLES_SHA, "labelled": score})
    with endpoint.database.write() as session:
        ingest.apply(session, found.model_copy(update={"measurement": measured}), datetime.now(UTC))
    endpoint.store.put(io.BytesIO(SAMPLES), "s")
    answer = reader.get(f"/samples/{SAMPLES_SHA}")
    assert (answer.status_code, answer.content) == (200, SAMPLES)
    assert reader.get(f"/samples/{answers}").content == b"answers"
    assert reader.get(f"/samples/{SHA}").status_code == 404, "a model is not for readers"
    assert reader.get(f"/artifacts/{SHA}").status_code == 401
    assert agent.get(f"/samples/{SAMPLES_SHA}").status_code == 401
