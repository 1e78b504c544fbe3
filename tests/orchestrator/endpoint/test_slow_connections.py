"""Connections without a token that stand still keep nobody out: not by number, not by what they withhold."""

from __future__ import annotations

import hashlib
import io
import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from agent.link.artifact_client import connect
from agent.wire.messages import artifact_path
from tests.services.certificates import Authority
from tests.services.endpoint import TOKEN, Endpoint
from tests.services.slowloris import Slowloris

MODEL = os.urandom(300_000)
SHA = hashlib.sha256(MODEL).hexdigest()
PATIENCE_S = 10.0


class Lab:
    """An endpoint, with TLS or without, and what an agent and a newcomer do there."""

    def __init__(self, folder: Path, *, tls: bool) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.endpoint = Endpoint(folder / "farm", tls=self.authority.issue() if tls else None)
        self.endpoint.store.put(io.BytesIO(MODEL), "m")
        self.pem = self.authority.path.read_text() if tls else None
        self._used = 0

    @property
    def port(self) -> int:
        return self.endpoint.port

    def work(self) -> None:
        """Fetch a model, store samples, enrol: with new connections, as after a restart."""
        self._used += 1
        state = self.folder / f"state-{self._used}"
        samples = f"[{self._used}]".encode()
        name = hashlib.sha256(samples).hexdigest()
        path = artifact_path(state / "store", name)
        path.parent.mkdir(parents=True)
        path.write_bytes(samples)
        agent = connect(self.endpoint.url, TOKEN, self.pem, state)
        agent.client.timeout = httpx.Timeout(PATIENCE_S)
        with agent.client:
            agent.fetch(SHA, len(MODEL))
            agent.upload(name)
        assert artifact_path(state / "store", SHA).read_bytes() == MODEL
        assert self.endpoint.store.path(name).read_bytes() == samples
        trust = ssl.create_default_context(cadata=self.pem)
        answer = httpx.post(
            f"{self.endpoint.url}/enrol",
            json={"token": "once"},
            verify=trust,
            trust_env=False,
            timeout=PATIENCE_S,
        )
        assert answer.status_code == 200


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("plain"), tls=False)
    yield made
    made.endpoint.close()


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("safe"), tls=True)
    yield made
    made.endpoint.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["headers", "unread"])
def test_a_thousand_standing_connections_keep_nobody_out(plain: Lab, tmp_path: Path, kind: str) -> None:
    with Slowloris(plain.port, kind, tmp_path / "attack.log"):
        for _ in range(2):
            plain.work()
    plain.work()


def test_nor_do_tls_handshakes_that_never_end(safe: Lab, tmp_path: Path) -> None:
    with Slowloris(safe.port, "handshake", tmp_path / "attack.log"):
        for _ in range(2):
            safe.work()
    safe.work()


def test_nor_do_slow_headers_within_tls(safe: Lab, tmp_path: Path) -> None:
    with Slowloris(safe.port, "headers", tmp_path / "attack.log", count=300, tls=True):
        safe.work()
    safe.work()
