"""Attacks on the endpoint from the network: without a token, with an agent's, with those of users."""

from __future__ import annotations

import hashlib
import itertools
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import httpx
import pytest

from agent.wire.credentials import Applicant
from agent.wire.envelope import SigningKey
from tests.attack.attacker import witness_is_heard
from tests.attack.lab import NEIGHBOUR, PATIENCE_S, ROGUE, VICTIM
from tests.orchestrator.cli.models import unary_model
from tests.orchestrator.endpoint.http_lab import READ_TOKEN, SUBMIT_TOKEN
from tests.services.slowloris import BEGINNINGS, Slowloris

SHA = "5" * 64
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
EVERYBODY = frozenset({"nobody", "a guess", "an agent", "a reader", "a submitter", "a user"})
READERS, SUBMITTERS = {"a reader", "a user"}, {"a submitter", "a user"}
MAY = {
    "/health": dict.fromkeys(("GET", "HEAD"), EVERYBODY),
    "/enrol": {"POST": EVERYBODY},
    f"/artifacts/{SHA}": {},
    f"/samples/{SHA}": {"HEAD": {"an agent"}, "PUT": {"an agent"}, "GET": READERS},
    f"/models/{SHA}": {"HEAD": SUBMITTERS, "PUT": SUBMITTERS},
    "/campaigns": {"GET": READERS, "HEAD": READERS},
    "/campaigns/x": {"GET": READERS, "HEAD": READERS},
    "/campaigns/x/results": {"GET": READERS, "HEAD": READERS},
    "/authority": dict.fromkeys(("GET", "HEAD"), EVERYBODY),
    "/farm/1/reading.campaigns": {"POST": {"a user"}},
    "/farm/1/steering.quarantine": {},
    "/farm/1/database.engine": {},
    "/": {},
    "/docs": {},
    "/openapi.json": {},
    "/metrics": {"GET": READERS, "HEAD": READERS},
    "//health": {},
    "/health/": {},
}
"""Path -> method -> who is let in. An agent's fetch of a model that none of its attempts uses is not."""


@pytest.fixture(scope="module")
def tokens(lab):
    """By who has it."""
    return {
        "nobody": None,
        "a guess": "g" * 43,
        "an agent": lab.credentials_of(ROGUE).token,
        "a reader": READ_TOKEN,
        "a submitter": SUBMIT_TOKEN,
        "a user": lab.user("mallory"),
    }


def raw(lab, sent: bytes, *, more: bytes = b"", limit_s: float = 5.0) -> bytes:
    """Return the endpoint's answer to these bytes, until it closes or is silent for a second."""
    host, received = lab.address[0], b""
    plain = socket.create_connection(lab.address, timeout=limit_s)
    with lab.trusting.wrap_socket(plain, server_hostname=host) as line:
        with suppress(OSError):  # the answer may come, and the connection close, before all is sent
            line.sendall(sent + more)
        with suppress(OSError):
            while block := line.recv(1 << 16):
                received += block
                line.settimeout(1.0)
    return received


def statuses(answer: bytes) -> list[int]:
    """Of every answer in it."""
    lines = [line for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
    return [int(line.split()[1]) for line in lines]


@pytest.mark.parametrize("who", sorted(EVERYBODY))
def test_every_method_on_every_route(lab, tokens, who):
    """A token opens what it is for and nothing else, and a refusal says no more than that."""
    wrong = []
    with lab.http(tokens[who]) as client:
        for path, methods in MAY.items():
            for method in METHODS:
                answer = client.request(method, path)
                let_in = answer.status_code not in (401, 403, 404, 405)
                if who in methods.get(method, ()):
                    # What is not there is said only to those who may ask for it.
                    let_in = let_in or answer.status_code == 404 or path == "/enrol"
                    wrong += [] if let_in else [(method, path, answer.status_code)]
                elif let_in or len(answer.content) > 300:
                    wrong.append((method, path, answer.status_code))
    assert wrong == []


@pytest.mark.parametrize(
    "authorization",
    [
        "Bearer",
        "Bearer x",
        f"Basic {READ_TOKEN}",
        f"Bearer  {READ_TOKEN}",
        f"Bearer {READ_TOKEN}x",
        f"Bearer {READ_TOKEN[:-1]}",
        f"Bearer {READ_TOKEN},{READ_TOKEN}",
        "Bearer " + "r" * 100_000,
        "Bearer \u00e9".encode("latin-1"),
        "Bearer ' OR 1=1 --",
        "Bearer None",
    ],
    ids=range(11),
)
def test_a_token_of_another_form(lab, authorization):
    """It opens nothing."""
    with lab.http() as client:
        answer = client.get("/campaigns", headers={"authorization": authorization})
        assert answer.status_code in (400, 401, 431)


NAMES = [
    "%00",
    "a%00b",
    "%00" * 30,
    "..%2f..%2f..%2fetc%2fpasswd",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "..%5c..%5cetc%5cpasswd",
    "%2fetc%2fpasswd",
    "sha256%2f11%2f" + "1" * 64,
    "5" * 63 + "%00",
    "5" * 64 + "%0a",
    "5" * 64 + "%00.tflite",
    "%C0%AE%C0%AE%2f",
    "%ff%fe",
    "%ed%a0%80",
    "%F0%9F%92%A9",
    "%25",
    "_",
    "%27%20OR%201=1%20--",
    "%27;DROP%20TABLE%20campaign;--",
    "{0.__class__}",
    "%0d%0aset-cookie:%20a=b",
    "A" * 7000,
]
"""Names of artifacts and campaigns, as they stand in a URL."""


OPEN_TO = {
    "/artifacts/{}": {"an agent": ("GET", "HEAD")},
    "/samples/{}": {"an agent": ("HEAD", "PUT"), "a reader": ("GET",)},
    "/models/{}": {"a submitter": ("HEAD", "PUT")},
    "/campaigns/{}": {"a reader": ("GET",)},
    "/campaigns/{}/results": {"a reader": ("GET",)},
}
"""Path -> who gets as far as the name, by which methods."""


@pytest.mark.parametrize("path", OPEN_TO)
def test_names_that_lead_elsewhere(lab, tokens, path):
    """NUL, traversal, injection: each is refused as what it is, never with 500; no SQL gets into the log."""
    logged, wrong = lab.serve.log.stat().st_size, []
    for who, methods in OPEN_TO[path].items():
        # A connection each: what the endpoint does not read of a refused body closes it.
        with lab.http(tokens[who], limits=httpx.Limits(max_keepalive_connections=0)) as client:
            for method, name in itertools.product(methods, NAMES):
                answer = client.request(method, path.format(name))
                if not 400 <= answer.status_code < 500 or b"root:" in answer.content:
                    wrong.append((who, method, name, answer.status_code))
    assert wrong == []
    with lab.serve.log.open("rb") as log:
        log.seek(logged)
        said = log.read()
    assert b"SELECT" not in said, said
    assert b"Traceback" not in said, said


FORMS = {
    "a megabyte in one header": b"GET /health HTTP/1.1\r\nhost: f\r\nx: " + b"a" * (1 << 20) + b"\r\n\r\n",
    "100,000 headers": b"GET /health HTTP/1.1\r\nhost: f\r\n" + b"x: a\r\n" * 100_000 + b"\r\n",
    "a megabyte of path": b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nhost: f\r\n\r\n",
    "a negative length": b"POST /enrol HTTP/1.1\r\nhost: f\r\ncontent-length: -1\r\n\r\n",
    "a length in words": b"POST /enrol HTTP/1.1\r\nhost: f\r\ncontent-length: ten\r\n\r\n",
    "two lengths": b"POST /enrol HTTP/1.1\r\nhost: f\r\ncontent-length: 2\r\ncontent-length: 60\r\n\r\n{}",
    "a length and chunks": (
        b"POST /enrol HTTP/1.1\r\nhost: f\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "chunks by another name": (
        b"POST /enrol HTTP/1.1\r\nhost: f\r\ntransfer-encoding: xchunked\r\ncontent-length: 2\r\n\r\n{}"
    ),
    "a space in a header's name": b"GET /health HTTP/1.1\r\nhost : f\r\ncontent-length : 0\r\n\r\n",
    "a NUL in a header": b"GET /health HTTP/1.1\r\nhost: f\r\nx: a\0b\r\n\r\n",
    "a chunk of no size": (
        b"POST /enrol HTTP/1.1\r\nhost: f\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n"
    ),
    "a chunk of 2**64 bytes": (
        b"POST /enrol HTTP/1.1\r\nhost: f\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff1\r\n{}"
    ),
    "another protocol": b"SSH-2.0-OpenSSH_9\r\n\r\n",
    "no version": b"GET /health\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "random bytes": bytes(range(256)) * 8,
}
SMUGGLED = b"GET /campaigns HTTP/1.1\r\nhost: f\r\nauthorization: Bearer " + READ_TOKEN.encode() + b"\r\n\r\n"


@pytest.mark.parametrize("form", FORMS)
def test_a_request_of_no_form(lab, form):
    """One refusal at most, the connection is closed, and what stands behind it is not read as a request."""
    found = statuses(raw(lab, FORMS[form], more=SMUGGLED))
    assert len(found) <= 1, found
    assert all(400 <= status < 500 for status in found), found


def test_bodies_that_are_too_large(lab, tokens):
    """Refused by what is announced, or as soon as there is too much of it, also where no length is told."""
    token = str(tokens["an agent"]).encode()
    samples = b"PUT /samples/" + SHA.encode() + b" HTTP/1.1\r\nhost: f\r\nauthorization: Bearer " + token
    enrol = b"POST /enrol HTTP/1.1\r\nhost: f\r\n"
    much = b"x" * 20_000
    endless = b"transfer-encoding: chunked\r\n\r\n" + b"400\r\n" + b"x" * 1024 + b"\r\n"
    for sent in (
        samples + b"\r\ncontent-length: " + b"9" * 18 + b"\r\n\r\n",
        enrol + b"content-length: " + b"9" * 18 + b"\r\n\r\n" + much,
        enrol + endless + (b"400\r\n" + b"x" * 1024 + b"\r\n") * 20,
    ):
        assert statuses(raw(lab, sent, limit_s=PATIENCE_S)) == [413]
    with lab.http(SUBMIT_TOKEN) as client:
        answer = client.put(
            f"/models/{SHA}", headers={"content-range": "bytes 0-" + "9" * 17 + "/1" + "0" * 17}
        )
        assert answer.status_code == 413
    with lab.http() as client:
        deep = client.post("/enrol", content=b"[" * 16_000)
        assert (deep.status_code, client.post("/enrol", content=b'{"a":' * 3000).status_code) == (400, 400)


def test_content_under_the_name_of_other_content(lab, tokens):
    """Neither samples nor models are stored under a hash that is not theirs."""
    honest = unary_model(size=77)
    name = hashlib.sha256(honest).hexdigest()
    forged = honest[:-1] + b"x"
    with lab.http(tokens["an agent"]) as agent:
        assert agent.put(f"/samples/{name}", content=forged).status_code == 422
        assert agent.head(f"/samples/{name}").status_code == 404
    part = {"content-range": f"bytes 0-{len(forged) - 1}/{len(forged)}"}
    with lab.http(SUBMIT_TOKEN) as submitter:
        assert submitter.put(f"/models/{name}", content=forged, headers=part).status_code == 422
        said = submitter.head(f"/models/{name}")
        assert (said.status_code, said.headers["upload-offset"]) == (404, "0"), "the forgery is not resumed"
        assert submitter.put(f"/models/{name}", content=honest, headers=part).status_code == 201


def test_ranges(lab):
    """One range inside the file or the whole file: never a byte of anything else, never many copies."""
    samples = b'[{"x": 1}]'
    name = hashlib.sha256(samples).hexdigest()
    with lab.http(SUBMIT_TOKEN) as submitter:
        for claimed in (
            "bytes 5-9/10",
            "bytes 9-5/10",
            "bytes 0-9/5",
            "bytes -5-9/10",
            "bytes */10",
            "x" * 5000,
        ):
            answer = submitter.put(f"/models/{name}", content=samples, headers={"content-range": claimed})
            assert answer.status_code in (400, 409), claimed
    many = "bytes=" + ",".join("0-" for _ in range(1000))
    with lab.http(lab.credentials_of(VICTIM).token) as agent:
        for asked in (many, "bytes=-99999999999999999999", "bytes=18446744073709551616-", "bytes=0-0," * 400):
            assert agent.get(f"/artifacts/{name}", headers={"range": asked}).status_code in (403, 416)


def test_guessing_replaying_and_changing_a_one_time_token(lab):
    """Only the first use of a token of this farm, in its hour, by the holder of the key, is an enrolment."""
    good, late = lab.invite("guest-1"), lab.invite("guest-2", timedelta(seconds=-1))
    applicant = Applicant.new()
    farm = good.rpartition(".")[2]
    other = SigningKey.new().public.key_id
    tries = {
        "a guess": applicant.request(f"{'x' * 43}.{farm}"),
        "too late": applicant.request(late),
        "of another farm": applicant.request(good.replace(farm, other)),
        "cut": applicant.request(good[1:]),
        "another key's proof": applicant.request(good) | {"proof": SigningKey.new().prove(good)},
        "another key": applicant.request(good) | {"public_key": SigningKey.new().public.text},
        "no hash": applicant.request(good) | {"token_sha256": "x" * 64},
        "a field more": applicant.request(good) | {"agent_id": VICTIM},
        "NUL": applicant.request(good) | {"token": "\0"},
        "a number": applicant.request(good) | {"token": 7},
    }
    with lab.http() as stranger:
        told = {name: stranger.post("/enrol", json=asked) for name, asked in tries.items()}
        assert {answer.status_code for answer in told.values()} <= {400, 403}, told
        surrogate = b'{"token": "\\ud800", "public_key": "x", "token_sha256": "x"}'
        assert stranger.post("/enrol", content=surrogate).status_code == 403
        assert stranger.post("/enrol", json=applicant.request(good)).status_code == 200
        assert stranger.post("/enrol", json=applicant.request(good)).status_code == 403
        again = stranger.post("/enrol", json=Applicant.new().request(good))
        assert again.status_code == 403


def test_one_token_used_by_twenty_at_once(lab):
    """Exactly one of them is enrolled."""
    token = lab.invite("guest-3")

    def enrol(_: int) -> int:
        with lab.http() as client:
            return client.post("/enrol", json=Applicant.new().request(token)).status_code

    with ThreadPoolExecutor(20) as pool:
        found = sorted(pool.map(enrol, range(20)))
    assert found == [200] + [403] * 19


@pytest.mark.attack
def test_a_thousand_guesses_of_a_token(lab):
    """All are refused alike, and the lab goes on meanwhile."""
    farm = lab.invite("guest-4").rpartition(".")[2]
    applicant = Applicant.new()
    with lab.http() as client:
        for number in range(1000):
            asked = applicant.request(f"{number:043}.{farm}")
            assert client.post("/enrol", json=asked).status_code == 403
            if number % 250 == 0:
                witness_is_heard(lab)


@pytest.mark.attack
def test_the_model_of_another_agents_attempt(lab, tokens):
    """While the attempt runs, its agent alone may fetch its model; other agents and users may not."""
    submitting = lab.begin(seconds=8.0)
    (sha256,) = lab.rows(
        "SELECT c.model_sha256 FROM attempt a JOIN cell c USING (cell_id) WHERE a.state = 'running'"
    )[0]
    found = {}
    for who, token in tokens.items():
        with lab.http(token) as client:
            found[who] = client.get(f"/artifacts/{sha256}").status_code
    submitting.end()
    assert found == {who: 403 if who == "an agent" else 401 for who in tokens}


@pytest.mark.attack
def test_tokens_cannot_be_told_apart_by_time(lab):
    """A token whose beginning is right takes as long to refuse as one that is wrong from the first letter."""
    near, far = READ_TOKEN[:-1] + "x", "x" + READ_TOKEN[1:]
    taken: dict[str, list[int]] = {near: [], far: []}
    with lab.http() as client:
        for number in range(1200):
            token = (near, far)[number % 2]
            begun = time.perf_counter_ns()
            assert client.get("/campaigns", headers={"authorization": f"Bearer {token}"}).status_code == 401
            taken[token].append(time.perf_counter_ns() - begun)
    medians = [sorted(times)[len(times) // 2] for times in taken.values()]
    assert abs(medians[0] - medians[1]) < 0.2 * max(medians)


@pytest.mark.attack
@pytest.mark.parametrize("kind", sorted(BEGINNINGS))
def test_a_thousand_connections_that_say_little(lab, kind):
    """Without a token they keep nobody out: an enrolment, an agent's request and a measurement go on."""
    tls = kind != "handshake"
    with Slowloris(lab.address[1], kind, lab.folder / "slowloris.log", tls=tls):
        lab.enrol(f"slow-{kind}")
        with lab.http(lab.credentials_of(NEIGHBOUR).token) as agent:
            assert agent.head(f"/samples/{SHA}").status_code == 404
        lab.measure()


def test_the_endpoint_still_answers(lab):
    """After all of this: health, results, and an agent's request."""
    with lab.http(READ_TOKEN) as reader:
        assert reader.get("/health").json()["farm"] == "well"
        assert reader.get("/campaigns").status_code == 200
    with lab.http(lab.credentials_of(NEIGHBOUR).token) as agent:
        assert agent.head(f"/samples/{SHA}").status_code == 404
    witness_is_heard(lab)
