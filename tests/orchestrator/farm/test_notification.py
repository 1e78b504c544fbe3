"""A message over real TLS: signed, to checked addresses alone, and without harm where nobody takes it."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import socket
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import pytest

from orchestrator.cli.submit import _tell
from orchestrator.errors import UsageError
from orchestrator.farm.submit import notification
from orchestrator.farm.submit.notification import MOST_TRIES, SECRET_VARIABLE, Notifier, message, signature
from orchestrator.manifest.budget import read_budget
from orchestrator.manifest.campaign import Notify
from orchestrator.results.budgets import judge_budgets
from orchestrator.results.records import CampaignRecord
from orchestrator.results.regression import by_names, compare_runs
from tests.orchestrator.cli.records import cell
from tests.services.https_server import Answer, HttpsServer

SECRET = b"a secret of both ends"
BODY = b'{"version": 1}'


def notifier(server: HttpsServer, **changes: Any) -> Notifier:
    """One that may reach the loopback, which no configuration allows."""
    plain = Notifier(Notify(f"{server.url}/hook?k=1"), SECRET, refused=lambda _: None, pauses_s=(0.0, 0.0))
    return replace(plain, **changes)


def test_a_message_arrives_with_a_signature_of_its_body(server: HttpsServer) -> None:
    server.pages["/hook?k=1"] = Answer(status=204)
    assert notifier(server).send(BODY) is None
    ((headers, body),) = server.posted
    assert body == BODY
    assert headers["Content-Type"] == "application/json"
    parts = dict(part.split("=", 1) for part in headers["X-Farm-Signature"].split(","))
    assert abs(int(parts["t"]) - time.time()) < 60
    signed = f"{parts['t']}\n{parts['nonce']}\n{server.url}/hook?k=1\n".encode() + BODY
    assert parts["sha256"] == hmac.new(SECRET, signed, hashlib.sha256).hexdigest()


@pytest.mark.parametrize(
    "changed",
    [{"time_s": 2}, {"nonce": "b"}, {"receiver": "https://other.example/"}, {"body": b"x"}, {"secret": b"x"}],
)
def test_a_signature_is_of_one_message_to_one_receiver_at_one_time(changed: dict[str, Any]) -> None:
    whole: dict[str, Any] = {
        "secret": SECRET,
        "time_s": 1,
        "nonce": "a",
        "receiver": "https://r/",
        "body": BODY,
    }
    digests = [signature(**given).rpartition("=")[2] for given in (whole, whole | changed)]
    assert digests[0] != digests[1]


def test_a_receiver_of_a_file_is_one_that_the_machine_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's campaign file could name a receiver of its own; the command line is the user's word."""
    monkeypatch.setenv(SECRET_VARIABLE, "s")
    asked = Notify("https://ci.example.org/hook")
    for allowed in ("", "example.org, other.example"):
        monkeypatch.setenv("FARM_NOTIFY_HOSTS", allowed)
        with pytest.raises(UsageError, match=r"FARM_NOTIFY_HOSTS=ci\.example\.org"):
            Notifier.of(asked, by_file=True)
    Notifier.of(asked, by_file=False)
    monkeypatch.setenv("FARM_NOTIFY_HOSTS", "other.example, CI.example.org")
    Notifier.of(asked, by_file=True)


def test_loopback_is_not_connected_to_and_the_path_is_not_printed(
    server: HttpsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = Notifier(Notify(f"{server.url}/hook?k=1"), SECRET)
    _tell(plain, BODY)
    said = capsys.readouterr().err
    assert "which is not a public address; the campaign is not affected" in said
    assert "hook" not in said
    assert (server.posted, server.asked) == ([], [])


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "169.254.169.254", "192.168.1.1", "::1", "fe80::1%1", "fc00::1"]
)
def test_no_private_address_among_those_of_a_name_is_connected_to(
    server: HttpsServer, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    asked: list[Any] = []
    found = [(0, 0, 0, "", (one, 443)) for one in ("93.184.215.14", address)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "create_connection", lambda *a, **_: asked.append(a))
    why = Notifier(Notify("https://example.org/"), SECRET).send(BODY)
    assert why is not None
    assert address in why
    assert asked == []


def test_a_name_that_changes_its_address_gets_nothing_else(
    server: HttpsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is asked once for each try, and the connection is to what was checked."""
    server.pages["/hook?k=1"] = Answer()
    port = int(server.url.rpartition(":")[2])
    answers = [[(0, 0, 0, "", ("127.0.0.1", port))], [(0, 0, 0, "", ("127.0.0.9", port))]]
    real, connected = socket.create_connection, []

    def connect(address: tuple[str, int], *rest: Any) -> socket.socket:
        connected.append(address[0])
        monkeypatch.undo()  # a socket looks its numeric address up as well
        return real(address, *rest)

    checked: list[list[str]] = []
    found = notifier(server, refused=lambda addresses: checked.append(list(addresses)))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers.pop(0))
    monkeypatch.setattr(socket, "create_connection", connect)
    found.send(BODY)
    assert (checked[0], connected) == (["127.0.0.1"], ["127.0.0.1"])


@pytest.mark.parametrize(
    ("status", "tries", "words"),
    [
        (302, 1, "it answers 302, and redirects are not followed"),
        (403, 1, "it answers 403"),
        (503, MOST_TRIES, "it answers 503 (3 tries)"),
    ],
)
def test_an_answer_that_is_no_success_is_said(
    server: HttpsServer, status: int, tries: int, words: str
) -> None:
    target = f"{server.url}/elsewhere"
    server.pages["/hook?k=1"] = Answer(status=status, headers={"location": target})
    assert notifier(server).send(BODY) == words
    assert server.asked == ["/hook?k=1"] * tries


def test_a_receiver_that_comes_back_is_told_once(server: HttpsServer) -> None:
    answers = [Answer(status=500), Answer(status=200)]
    server.pages["/hook?k=1"] = lambda: answers.pop(0)
    assert notifier(server).send(BODY) is None
    assert [body for _, body in server.posted] == [BODY, BODY]
    assert len({headers["X-Farm-Signature"] for headers, _ in server.posted}) == 1


def test_a_receiver_that_hangs_or_is_not_who_it_should_be_costs_a_line(
    server: HttpsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notification, "TRY_LIMIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://localhost:{silent.getsockname()[1]}/"
        why = notifier(server, notify=Notify(url)).send(BODY)
    assert why is not None
    assert why.startswith("no answer: ")
    monkeypatch.setattr(notification, "TRY_LIMIT_S", 10.0)
    monkeypatch.delenv("SSL_CERT_FILE")
    why = notifier(server).send(BODY)
    assert why is not None
    assert "certificate cannot be trusted" in why
    assert server.posted == []


def test_a_receiver_that_sends_a_byte_now_and_then_is_left_after_the_limit(
    server: HttpsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notification, "TRY_LIMIT_S", 0.2)
    ours, theirs = socket.socketpair()

    class Drips:
        """A connection whose answer never ends, and never lets a single read wait for long."""

        sock = ours

        def connect(self) -> None: ...

        def request(self, *words: object) -> None: ...

        def getresponse(self) -> None:
            for _ in range(60):
                with contextlib.suppress(OSError):
                    theirs.send(b"x")
                if not ours.recv(1):
                    raise TimeoutError("it was left")
                time.sleep(0.05)

        def close(self) -> None: ...

    with ours, theirs, pytest.raises(TimeoutError, match="it was left"):
        notifier(server)._posted(Drips(), urlsplit(server.url), BODY, "v1")  # type: ignore[arg-type]


def test_what_cannot_notify_is_refused_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    with pytest.raises(UsageError, match="FARM_NOTIFY_SECRET is not set"):
        Notifier.of(Notify("https://example.org/hook"), by_file=False)
    monkeypatch.setenv(SECRET_VARIABLE, "s")
    for url in ("http://example.org/", "https://me:pass@example.org/", "ftp://example.org"):
        with pytest.raises(UsageError):
            Notifier.of(Notify(url), by_file=False)
    assert (
        Notifier.of(Notify("https://example.org/hook"), by_file=False).refused(["127.0.0.1"]) == "127.0.0.1"
    )


def test_the_message_says_what_ended_how() -> None:
    before, after = cell(), cell(p50=4.0, ci95=(3.9, 4.1))
    earlier = compare_runs(by_names([before]), by_names([after]))
    judged = judge_budgets([after], [read_budget("p50<=1ms"), read_budget("p50<=5ms")])
    campaign = CampaignRecord(
        campaign_id="demo-1",
        name="demo",
        submitted_at=datetime.now(UTC),
        level="quick",
        baseline=None,
        manifest_sha256="0" * 64,
        models=("net",),
        delegates=("cpu",),
        labels={"branch": "main"},
    )
    told = json.loads(message(campaign, [after], judged, earlier, 3, "https://example.org/farm/"))
    assert told == {
        "version": 1,
        "campaign": {"id": "demo-1", "name": "demo", "level": "quick"},
        "labels": {"branch": "main"},
        "counts": {"done": 1},
        "wrong_output": 0,
        "verdicts": {},
        "against": {"same": 1},
        "budgets": {"exceeded": 1, "met": 1},
        "not_met": [
            {
                "budget": "p50<=1ms", "outcome": "exceeded", "model": "net", "delegate": "cpu",
                "device": "host-cpu", "said": "4 ms [3.9 ms to 4.1 ms]",
            }
        ],
        "exit_code": 3,
        "url": "https://example.org/farm/",
    }  # fmt: skip
