"""Models from other machines: whole or in pieces, within the farm's limits, and only what their name says."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

import httpx
import pytest

from orchestrator.config.address import Address
from orchestrator.config.limits import StoreLimits
from orchestrator.endpoint import client
from orchestrator.endpoint.client import Sender
from orchestrator.errors import FarmError, UnreachableError, UsageError
from orchestrator.maintenance.prune import collect_unnamed
from orchestrator.sources.store import Store
from tests.services.endpoint import READ_TOKEN, SUBMIT_TOKEN, TOKEN, Endpoint
from tests.services.ports import free_port

CONTENT = b"\x1c\x00\x00\x00TFL3" + bytes(range(251)) * 20_000
SHA = hashlib.sha256(CONTENT).hexdigest()
SENDER = "the submit token"
"""The farm's name for whoever has that token."""

LIMITS = StoreLimits(artifact_bytes=6_000_000, store_bytes=8_000_000)


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    opened = Endpoint(tmp_path / "farm", LIMITS)
    yield opened
    opened.close()


@pytest.fixture
def user(endpoint: Endpoint) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {SUBMIT_TOKEN}"}
    with httpx.Client(base_url=endpoint.url, headers=headers, trust_env=False) as client:
        yield client


@pytest.fixture
def own(tmp_path: Path) -> Store:
    store = Store(tmp_path / "own-store")
    store.put(io.BytesIO(CONTENT), "m")
    return store


def sender(endpoint: Endpoint, token: str = SUBMIT_TOKEN) -> Sender:
    parts = urlsplit(endpoint.url)
    return Sender(Address(endpoint.url, str(parts.hostname), endpoint.port), token, pause_s=0.01)


def content_range(start: int, size: int) -> dict[str, str]:
    return {"content-range": f"bytes {start}-{size - 1}/{size}"}


def incoming(endpoint: Endpoint) -> list[str]:
    return [path.name for path in (endpoint.store.root / "incoming").glob("*")]


@contextmanager
def another_sender(endpoint: Endpoint) -> Iterator[int]:
    """Yield the number of bytes that a sender has brought, which hangs up at the end; the farm has noticed
    then.
    """
    path = endpoint.store.incoming(SHA, SENDER)
    head = (
        f"PUT /models/{SHA} HTTP/1.1\r\nHost: farm\r\nAuthorization: Bearer {SUBMIT_TOKEN}\r\n"
        f"Content-Length: {len(CONTENT)}\r\n"
        f"Content-Range: bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", endpoint.port)) as line:
        line.sendall(head.encode() + CONTENT[:2_000_000])
        until(lambda: path.exists() and path.stat().st_size >= 1_000_000, "the sender's bytes arrive")
        yield path.stat().st_size
    with path.open("rb") as file:
        until(lambda: takes_lock(file), "the farm sees that the sender is gone")


def takes_lock(file: BinaryIO) -> bool:
    """Whether the lock of a growing file is this test's own now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def until(happens: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_a_model_is_sent_once(endpoint: Endpoint, own: Store) -> None:
    said: list[str] = []
    for _ in range(2):
        sender(endpoint).send(SHA, own, said.append)
    assert said == [f"sending model {SHA[:12]} (4.8 MiB) to {endpoint.url}"]
    assert endpoint.store.path(SHA).read_bytes() == CONTENT
    assert incoming(endpoint) == []


def test_what_broke_off_goes_on_where_it_broke(endpoint: Endpoint, user: httpx.Client, own: Store) -> None:
    with another_sender(endpoint):
        pass
    sender(endpoint).send(SHA, own, lambda _: None)
    assert endpoint.store.path(SHA).read_bytes() == CONTENT
    assert user.head(f"/models/{SHA}").status_code == 200


def test_one_sender_at_a_time_appends_to_a_model(endpoint: Endpoint, user: httpx.Client, own: Store) -> None:
    with another_sender(endpoint) as here:
        second = user.put(f"/models/{SHA}", content=CONTENT[here:], headers=content_range(here, len(CONTENT)))
        assert second.status_code == 409
        assert "the same sender is uploading this model already" in second.json()["error"]
    sender(endpoint).send(SHA, own, lambda _: None)
    assert endpoint.store.path(SHA).read_bytes() == CONTENT


def test_who_sends_more_than_announced_is_cut_off_and_fills_no_disk(
    endpoint: Endpoint, user: httpx.Client
) -> None:
    more = iter([bytes(100_000)] * 2)
    answer = user.put(f"/models/{SHA}", content=more, headers=content_range(0, 5))
    assert answer.status_code == 409
    assert "bytes too many" in answer.json()["error"]
    assert endpoint.store.size_of_incoming(SHA, SENDER) <= 5


def test_only_the_bytes_that_are_missing_are_sent(endpoint: Endpoint, user: httpx.Client) -> None:
    path = endpoint.store.incoming(SHA, SENDER)
    path.write_bytes(CONTENT[:4_000_000])
    asked = user.head(f"/models/{SHA}")
    assert (asked.status_code, asked.headers["upload-offset"]) == (404, "4000000")
    early = user.put(f"/models/{SHA}", content=CONTENT, headers=content_range(0, len(CONTENT)))
    assert early.status_code == 409
    assert "the farm has 4000000 bytes" in early.json()["error"]
    rest = user.put(
        f"/models/{SHA}", content=CONTENT[4_000_000:], headers=content_range(4_000_000, len(CONTENT))
    )
    assert rest.status_code == 201
    assert endpoint.store.path(SHA).read_bytes() == CONTENT


def test_a_model_that_is_not_what_its_name_says_leaves_nothing(
    endpoint: Endpoint, user: httpx.Client
) -> None:
    wrong = user.put(f"/models/{SHA}", content=b"other", headers=content_range(0, 5))
    assert wrong.status_code == 422
    assert "wrong sha256" in wrong.json()["error"]
    assert endpoint.store.find(SHA) is None
    assert incoming(endpoint) == []


def test_what_is_neither_a_model_nor_labelled_data_leaves_nothing(
    endpoint: Endpoint, user: httpx.Client
) -> None:
    for content in (b"wheel:$6$saltsalt$abcdef:19000", b"PK\x03\x04 but no archive", b"{}"):
        sha256 = hashlib.sha256(content).hexdigest()
        answer = user.put(f"/models/{sha256}", content=content, headers=content_range(0, len(content)))
        assert answer.status_code == 422
        assert "salt" not in answer.text
        assert endpoint.store.find(sha256) is None
        assert incoming(endpoint) == []


def test_what_the_farm_found_to_be_no_model_is_not_sent_again(endpoint: Endpoint, own: Store) -> None:
    found = own.put(io.BytesIO(b"{}"), "no model")
    with pytest.raises(FarmError, match=r"is refused by .*422: model"):
        sender(endpoint).send(found.sha256, own, lambda _: None)


def test_a_beginning_that_was_wrong_does_not_stay_in_the_way(endpoint: Endpoint, own: Store) -> None:
    endpoint.store.incoming(SHA, SENDER).write_bytes(b"x" * 1000)
    sender(endpoint).send(SHA, own, lambda _: None)
    assert endpoint.store.path(SHA).read_bytes() == CONTENT


def test_nobody_spoils_or_blocks_what_another_user_sends(endpoint: Endpoint, own: Store) -> None:
    of_eve = endpoint.store.incoming(SHA, "user eve")
    of_eve.write_bytes(b"x" * 1000)
    with of_eve.open("rb") as held:
        assert takes_lock(held)
        sender(endpoint).send(SHA, own, lambda _: None)
    assert endpoint.store.path(SHA).read_bytes() == CONTENT
    assert incoming(endpoint) == [of_eve.name]


def test_unfinished_uploads_of_a_sender_are_bounded(
    endpoint: Endpoint, own: Store, user: httpx.Client
) -> None:
    for digit in "1234567":
        endpoint.store.incoming(digit * 64, SENDER).write_bytes(b"")
        os.truncate(endpoint.store.incoming(digit * 64, SENDER), 6_200_000)
    refused = user.put(f"/models/{SHA}", content=CONTENT, headers=content_range(0, len(CONTENT)))
    assert refused.status_code == 422
    assert (
        "the submit token has sent 8 times the largest model that no campaign names"
        in refused.json()["error"]
    )
    for digit in "1234567":
        endpoint.store.incoming(digit * 64, SENDER).unlink()
    sender(endpoint).send(SHA, own, lambda _: None)


def test_whole_uploads_count_for_their_sender_until_a_campaign_names_them(
    endpoint: Endpoint, own: Store
) -> None:
    sender(endpoint).send(SHA, own, lambda _: None)
    assert endpoint.store.bytes_of_sender(SENDER) == len(CONTENT)
    assert endpoint.store.bytes_of_sender("user eve") == 0
    endpoint.store.named(SHA)
    assert endpoint.store.bytes_of_sender(SENDER) == 0
    assert endpoint.store.path(SHA).read_bytes() == CONTENT


def test_what_no_campaign_names_is_deleted_after_an_hour_and_not_under_a_submission(
    endpoint: Endpoint, own: Store
) -> None:
    sender(endpoint).send(SHA, own, lambda _: None)
    for minutes, gone in ((59, 0), (61, 1)):
        later = datetime.now(UTC) + timedelta(minutes=minutes)
        with endpoint.store.in_use():
            assert collect_unnamed(endpoint.database, endpoint.store, later) == 0
        assert collect_unnamed(endpoint.database, endpoint.store, later) == gone
        assert (endpoint.store.find(SHA) is None) == bool(gone)
    assert endpoint.store.bytes_of_sender(SENDER) == 0


@pytest.mark.parametrize("header", ["", "bytes 0-4/*", "bytes 0-3/5", "bytes 5-4/5", "bytes */5"])
def test_a_request_says_what_it_brings(user: httpx.Client, header: str) -> None:
    headers = {"content-range": header} if header else {}
    assert user.put(f"/models/{SHA}", content=b"12345", headers=headers).status_code == 400


def test_the_farms_limits_hold_and_are_told(endpoint: Endpoint, tmp_path: Path, user: httpx.Client) -> None:
    large = Store(tmp_path / "large")
    found = large.put(io.BytesIO(bytes(6_000_001)), "m")
    with pytest.raises(FarmError, match="6000001 bytes; the limit of the farm is 6000000"):
        sender(endpoint).send(found.sha256, large, lambda _: None)
    endpoint.store.put(io.BytesIO(b"1" * 4_000_000), "other")
    full = user.put(f"/models/{SHA}", content=CONTENT, headers=content_range(0, len(CONTENT)))
    assert full.status_code == 507
    assert "its budget is 7.6 MiB" in full.json()["error"]
    assert endpoint.store.find(SHA) is None


@pytest.mark.parametrize("token", [TOKEN, READ_TOKEN, "x" * 40])
def test_only_the_submit_token_opens_the_store(endpoint: Endpoint, own: Store, token: str) -> None:
    with pytest.raises(UsageError, match="FARM_SUBMIT_TOKEN"):
        sender(endpoint, token).send(SHA, own, lambda _: None)
    headers = {"authorization": f"Bearer {token}"} | content_range(0, len(CONTENT))
    with httpx.Client(base_url=endpoint.url, trust_env=False) as stranger:
        assert stranger.put(f"/models/{SHA}", content=CONTENT, headers=headers).status_code == 401
    assert endpoint.store.find(SHA) is None


@pytest.mark.parametrize("name", ["0" * 63, "A" * 64, "..%2f..%2fx"])
def test_only_a_sha256_names_a_model(user: httpx.Client, name: str) -> None:
    assert user.head(f"/models/{name}").status_code in (400, 404)
    assert user.put(f"/models/{name}", content=b"1", headers=content_range(0, 1)).status_code in (400, 404)


def test_a_farm_that_does_not_answer_is_named_after_the_last_try(
    endpoint: Endpoint, own: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(client.time, "sleep", pauses.append)
    port = free_port()
    gone = replace(sender(endpoint), address=Address(f"http://127.0.0.1:{port}", "127.0.0.1", port))
    with pytest.raises(UnreachableError, match=f"cannot be sent to http://127.0.0.1:{port}"):
        gone.send(SHA, own, lambda _: None)
    assert pauses == pytest.approx([0.01, 0.02, 0.03, 0.04]), "one between two tries, none after the last"
