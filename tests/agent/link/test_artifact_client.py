"""Models over a real endpoint and bad networks: whole and intact, or not at all (fault scenario 28)."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from agent.attempt.artifacts import verified_file
from agent.link.artifact_client import (
    EndpointArtifacts,
    TransferError,
    artifacts_of,
    connect,
    files_of_running,
)
from agent.link.artifact_sync import NeverTakenError, SharedStore
from agent.link.cache import budget_from
from agent.wire.messages import artifact_path
from orchestrator.config.limits import StoreLimits
from tests.needs import REPOSITORY
from tests.services.certificates import Authority
from tests.services.endpoint import TOKEN, Endpoint
from tests.services.https_server import Answer, HttpsServer
from tests.services.ports import free_port
from tests.services.processes import Server

MODEL = os.urandom(700_000)
SHA = hashlib.sha256(MODEL).hexdigest()


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    opened = Endpoint(tmp_path)
    opened.store.put(io.BytesIO(MODEL), "m")
    yield opened
    opened.close()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def artifacts(endpoint: Endpoint, state: Path) -> Iterator[EndpointArtifacts]:
    with open_artifacts(endpoint.url, state) as made:
        yield made


@contextmanager
def open_artifacts(url: str, state: Path, authority: str | None = None) -> Iterator[EndpointArtifacts]:
    made = connect(url, TOKEN, authority, state)
    made.pause_s = 0.01
    with made.client:
        yield made


@pytest.fixture
def through_proxy(endpoint: Endpoint, state: Path, tmp_path: Path, request: pytest.FixtureRequest):
    """Return the artifacts, and the proxy between that has the faults of the parameter."""
    port = free_port()
    command = [sys.executable, str(REPOSITORY / "tests/services/proxy.py"), *request.param]
    command += ["--listen", f"127.0.0.1:{port}", "--target", f"127.0.0.1:{endpoint.port}"]
    proxy = Server(command, tmp_path / "proxy.log")

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    proxy.until(answers, "the proxy")
    with open_artifacts(f"http://127.0.0.1:{port}", state) as made:
        yield made
    proxy.kill()


def test_a_model_comes_and_is_what_its_name_says(artifacts: EndpointArtifacts, state: Path) -> None:
    assert not artifacts.has(SHA, len(MODEL))
    artifacts.fetch(SHA, len(MODEL))
    assert artifacts.has(SHA, len(MODEL))
    assert verified_file(state / "store", SHA, len(MODEL)).read_bytes() == MODEL
    assert list((state / "store" / "incoming").iterdir()) == []


@pytest.mark.parametrize("through_proxy", [["--cut-after", "350000"]], indirect=True)
def test_a_transfer_that_is_cut_in_the_middle_goes_on_from_there(
    through_proxy: EndpointArtifacts, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "httpx")
    through_proxy.fetch(SHA, len(MODEL))
    assert verified_file(state / "store", SHA, len(MODEL)).read_bytes() == MODEL
    assert '"HTTP/1.1 206 Partial Content"' in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("through_proxy", [["--flip-at", "350000"]], indirect=True)
def test_a_flipped_bit_is_noticed_and_the_model_fetched_anew(
    through_proxy: EndpointArtifacts, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    through_proxy.fetch(SHA, len(MODEL))
    assert verified_file(state / "store", SHA, len(MODEL)).read_bytes() == MODEL
    assert "arrived damaged" in caplog.text


@pytest.mark.parametrize("through_proxy", [["--cut-after", "350000", "--flip-at", "200000"]], indirect=True)
def test_a_damaged_beginning_is_not_trusted_by_what_goes_on_from_it(
    through_proxy: EndpointArtifacts, state: Path
) -> None:
    through_proxy.fetch(SHA, len(MODEL))
    assert verified_file(state / "store", SHA, len(MODEL)).read_bytes() == MODEL


def test_another_process_goes_on_where_a_killed_one_stopped(
    artifacts: EndpointArtifacts, state: Path
) -> None:
    beginning = state / "store" / "incoming" / SHA
    beginning.parent.mkdir(parents=True)
    beginning.write_bytes(MODEL[:600_000])
    artifacts.fetch(SHA, len(MODEL))
    assert verified_file(state / "store", SHA, len(MODEL)).read_bytes() == MODEL


@pytest.mark.parametrize(
    "beginning", [b"x" * 600_000, MODEL + b"x", b"x" * len(MODEL)], ids=["wrong", "long", "whole"]
)
def test_a_beginning_of_something_else_is_thrown_away(
    artifacts: EndpointArtifacts, state: Path, beginning: bytes
) -> None:
    path = state / "store" / "incoming" / SHA
    path.parent.mkdir(parents=True)
    path.write_bytes(beginning)
    artifacts.fetch(SHA, len(MODEL))
    assert verified_file(state / "store", SHA, len(MODEL)).read_bytes() == MODEL


def test_a_model_that_is_swapped_on_the_farm_never_arrives(
    artifacts: EndpointArtifacts, endpoint: Endpoint, state: Path
) -> None:
    path = endpoint.store.path(SHA)
    path.chmod(0o644)
    path.write_bytes(b"x" * len(MODEL))
    with pytest.raises(TransferError, match="do not hash to its name"):
        artifacts.fetch(SHA, len(MODEL))
    assert not artifact_path(state / "store", SHA).exists()
    assert list((state / "store" / "incoming").iterdir()) == []


@pytest.mark.parametrize("size", [len(MODEL) - 1, len(MODEL) + 1])
def test_a_model_of_another_size_than_announced_never_arrives(
    artifacts: EndpointArtifacts, state: Path, size: int
) -> None:
    with pytest.raises(TransferError, match=r"more than the|bytes are missing|answers 416"):
        artifacts.fetch(SHA, size)
    assert not artifact_path(state / "store", SHA).exists()


def test_a_damaged_model_in_the_cache_is_fetched_again(artifacts: EndpointArtifacts, state: Path) -> None:
    artifacts.fetch(SHA, len(MODEL))
    path = artifact_path(state / "store", SHA)
    path.chmod(0o644)
    path.write_bytes(MODEL[:-1])
    assert not artifacts.has(SHA, len(MODEL))
    artifacts.fetch(SHA, len(MODEL))
    assert path.read_bytes() == MODEL


def test_what_the_daemon_found_damaged_is_hashed_before_the_next_attempt(
    artifacts: EndpointArtifacts, state: Path
) -> None:
    artifacts.fetch(SHA, len(MODEL))
    artifacts.hold("attempt", [SHA])
    path = artifact_path(state / "store", SHA)
    before = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(b"\0\1\2\3\4\5\6\7\x08\x09")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    artifacts.release("attempt", damaged=True)
    assert not artifacts.has(SHA, len(MODEL))
    artifacts.fetch(SHA, len(MODEL))
    assert path.read_bytes() == MODEL


def test_what_the_farm_lacks_or_refuses_is_said_at_once(
    endpoint: Endpoint, artifacts: EndpointArtifacts
) -> None:
    with pytest.raises(TransferError, match="404: the farm has no artifact"):
        artifacts.fetch("0" * 64, 10)
    endpoint.trust.tokens.clear()
    with pytest.raises(TransferError, match="401: no agent has this token"):
        artifacts.fetch(SHA, len(MODEL))


def test_a_farm_that_is_down_is_an_error_with_its_address(state: Path) -> None:
    port = free_port()
    with open_artifacts(f"http://127.0.0.1:{port}", state) as made:
        with pytest.raises(TransferError, match=rf"127\.0\.0\.1:{port}.*ConnectError"):
            made.fetch(SHA, 10)
        with pytest.raises(TransferError, match="cannot be reached"):
            made.upload(SHA)


def test_samples_go_to_the_farm_and_are_not_kept_twice(
    artifacts: EndpointArtifacts, endpoint: Endpoint, state: Path
) -> None:
    path = artifact_path(state / "store", SHA)
    samples = b"[[1, 2]]"
    name = hashlib.sha256(samples).hexdigest()
    path = artifact_path(state / "store", name)
    path.parent.mkdir(parents=True)
    path.write_bytes(samples)
    artifacts.upload(name)
    assert endpoint.store.path(name).read_bytes() == samples
    assert not path.exists()
    artifacts.upload(name)
    with pytest.raises(NeverTakenError, match="neither here nor on the farm"):
        artifacts.upload("0" * 64)


def test_samples_that_the_farm_cannot_take_stay_here(tmp_path: Path, state: Path) -> None:
    full = Endpoint(tmp_path / "full", StoreLimits(free_bytes=1 << 50))
    path = artifact_path(state / "store", SHA)
    path.parent.mkdir(parents=True)
    path.write_bytes(MODEL)
    try:
        with (
            open_artifacts(full.url, state) as made,
            pytest.raises(TransferError, match=r"507: only .* are kept free"),
        ):
            made.upload(SHA)
        assert path.read_bytes() == MODEL
    finally:
        full.close()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_samples_that_the_farm_will_never_take_are_given_up_at_once(
    tmp_path: Path, state: Path, tls: bool
) -> None:
    authority = Authority(tmp_path)
    farm = Endpoint(tmp_path / "small", StoreLimits(samples_bytes=1000), authority.issue() if tls else None)
    samples = bytes(20_000_000)
    large, wrong = hashlib.sha256(samples).hexdigest(), "1" * 64
    for name, content in ((large, samples), (wrong, b"x")):
        path = artifact_path(state / "store", name)
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    try:
        with open_artifacts(farm.url, state, authority.path.read_text() if tls else None) as made:
            with pytest.raises(NeverTakenError, match=r"413: 20000000 bytes.* 1000 \(FARM_SAMPLES_BYTES\)"):
                made.upload(large)
            with pytest.raises(NeverTakenError, match=r"422: .*wrong sha256"):
                made.upload(wrong)
            with pytest.raises(NeverTakenError, match="neither here nor on the farm"):
                made.upload(large)
        assert not artifact_path(state / "store", large).exists()
    finally:
        farm.close()


@pytest.mark.parametrize("status", [400, 405, 410])
def test_a_model_that_the_farm_will_never_serve_is_asked_for_once(
    tmp_path: Path, state: Path, status: int
) -> None:
    authority = Authority(tmp_path)
    farm = HttpsServer(authority.issue("localhost"))
    farm.pages[f"/artifacts/{SHA}"] = Answer(b'{"error": "no"}', status)
    try:
        with (
            open_artifacts(farm.url, state, authority.path.read_text()) as made,
            pytest.raises(TransferError, match=rf"{status}: no"),
        ):
            made.fetch(SHA, len(MODEL))
        assert len(farm.asked) == 1
    finally:
        farm.close()


def test_only_the_farms_own_certificate_is_trusted(tmp_path: Path, state: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "a stranger")
    endpoint = Endpoint(tmp_path, tls=authority.issue())
    endpoint.store.put(io.BytesIO(MODEL), "m")
    try:
        for pem in (None, stranger.path.read_text()):
            with (
                open_artifacts(endpoint.url, state, pem) as made,
                pytest.raises(TransferError, match="CERTIFICATE_VERIFY_FAILED"),
            ):
                made.fetch(SHA, len(MODEL))
        with open_artifacts(endpoint.url, state, authority.path.read_text()) as made:
            made.fetch(SHA, len(MODEL))
    finally:
        endpoint.close()


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"begun": timedelta(hours=-2)}, "certificate is not yet valid"),
        ({"ended": timedelta(hours=2)}, "certificate has expired"),
    ],
)
def test_a_certificate_of_another_time_raises_the_question_of_the_clock_and_samples_wait(
    tmp_path: Path, state: Path, times: dict[str, timedelta], said: str
) -> None:
    authority = Authority(tmp_path)
    endpoint = Endpoint(tmp_path, tls=authority.issue(**times))
    samples = artifact_path(state / "store", SHA)
    samples.parent.mkdir(parents=True)
    samples.write_bytes(MODEL)
    try:
        with open_artifacts(endpoint.url, state, authority.path.read_text()) as made:
            for transfer in (lambda: made.fetch("0" * 64, 1), lambda: made.upload(SHA)):
                with pytest.raises(
                    TransferError, match=rf"{said}.*; is this machine's clock right\?"
                ) as told:
                    transfer()
                assert "\n" not in str(told.value)
        assert samples.read_bytes() == MODEL
    finally:
        endpoint.close()


def test_credentials_say_where_files_come_from(state: Path, tmp_path: Path) -> None:
    state.mkdir()
    said = {"endpoint": "http://127.0.0.1:1", "token": TOKEN}
    assert isinstance(artifacts_of({}, state), SharedStore)
    chosen = artifacts_of(said, state)
    assert isinstance(chosen, EndpointArtifacts)
    chosen.client.close()
    with pytest.raises(ValueError, match="no token; enrol again"):
        artifacts_of({"endpoint": "http://127.0.0.1:1"}, state)
    with pytest.raises(ValueError, match="not a certificate"):
        artifacts_of(said | {"endpoint_ca": "nonsense"}, state)
    (state / "store").symlink_to(tmp_path)
    assert isinstance(artifacts_of(said, state), SharedStore)


def test_the_budget_is_a_number_of_bytes() -> None:
    assert budget_from({"FARM_AGENT_CACHE_BYTES": "5"}) == 5
    for wrong in ("0", "-1", "1e9", "x"):
        with pytest.raises(ValueError, match="FARM_AGENT_CACHE_BYTES"):
            budget_from({"FARM_AGENT_CACHE_BYTES": wrong})


def test_files_of_running_attempts_are_known_by_their_job_files(tmp_path: Path) -> None:
    with_data = '{"job": {"model_sha256": "y", "plan": {"labelled": {"sha256": "z"}}}}'
    texts = {"a": '{"job": {"model_sha256": "x", "plan": {}}}', "b": "{", "c": "[]", "d": with_data}
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "job.json").write_text(text)
    assert files_of_running(tmp_path) == {"x", "y", "z"}


@pytest.fixture
def stranger(tmp_path: Path, state: Path) -> Iterator[tuple[HttpsServer, EndpointArtifacts]]:
    """Yield a server that answers as it likes, and the artifacts of an agent that takes it for its farm."""
    authority = Authority(tmp_path)
    server = HttpsServer(authority.issue("localhost"))
    with open_artifacts(server.url, state, authority.path.read_text()) as made:
        yield server, made
    server.close()


def test_a_farm_that_sends_more_than_the_model_is_cut_off_and_fills_no_disk(stranger, state: Path) -> None:
    farm, made = stranger
    farm.pages[f"/artifacts/{SHA}"] = Answer(bytes(5_000_000))
    with pytest.raises(TransferError, match="sends more than the 1000 bytes of the model"):
        made.fetch(SHA, 1000)
    assert sum(path.stat().st_size for path in (state / "store" / "incoming").iterdir()) <= 1000


def test_no_redirect_is_followed_whatever_lies_behind_it(stranger, state: Path) -> None:
    farm, made = stranger
    farm.pages[f"/artifacts/{SHA}"] = Answer(status=302, headers={"location": f"{farm.url}/elsewhere"})
    farm.pages["/elsewhere"] = Answer(MODEL)
    with pytest.raises(TransferError, match="the farm answers 302"):
        made.fetch(SHA, len(MODEL))
    assert set(farm.asked) == {f"/artifacts/{SHA}"}
    assert not artifact_path(state / "store", SHA).exists()
