"""The content-addressed store: an artifact is there whole, under its hash, or not at all."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
import threading
from pathlib import Path
from typing import BinaryIO

import pytest

from orchestrator.config.limits import StoreLimits
from orchestrator.errors import FarmError, UsageError
from orchestrator.sources.store import Store
from tests.power_cut import Disk

CONTENT = b"a model" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def files(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def test_an_artifact_lies_under_its_hash_and_is_read_only(tmp_path: Path) -> None:
    stored = Store(tmp_path).put(io.BytesIO(CONTENT), "m.tflite")
    assert (stored.sha256, stored.size_bytes) == (SHA256, len(CONTENT))
    assert files(tmp_path) == [f"sha256/{SHA256[:2]}/{SHA256}"]
    path = Store(tmp_path).path(SHA256)
    assert path.read_bytes() == CONTENT
    assert stat.S_IMODE(path.stat().st_mode) & 0o222 == 0


def test_the_same_content_is_kept_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.put(io.BytesIO(CONTENT), "a") == store.put(io.BytesIO(CONTENT), "b", SHA256)
    assert len(files(tmp_path)) == 1


def test_content_with_another_hash_than_pinned_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        Store(tmp_path).put(io.BytesIO(CONTENT), "m.tflite", "0" * 64)
    assert f"expected {'0' * 64}" in str(caught.value)
    assert f"found    {SHA256}" in str(caught.value)
    assert files(tmp_path) == []


def test_a_file_over_the_limit_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"m\.tflite: larger than 100 bytes"):
        Store(tmp_path, max_bytes=100).put(io.BytesIO(b"x" * 101), "m.tflite")
    assert files(tmp_path) == []


def test_an_endless_stream_ends_at_the_limit(tmp_path: Path) -> None:
    with Path("/dev/zero").open("rb") as zeros, pytest.raises(UsageError, match="larger than"):
        Store(tmp_path, max_bytes=3_000_000).put(zeros, "/dev/zero")
    assert files(tmp_path) == []


def test_a_stream_that_breaks_leaves_nothing(tmp_path: Path) -> None:
    class Broken:
        def __init__(self) -> None:
            self.reads = 0

        def read(self, size: int, /) -> bytes:
            self.reads += 1
            if self.reads > 1:
                raise OSError(5, "Input/output error")
            return b"x" * size

    with pytest.raises(FarmError, match="Input/output error"):
        Store(tmp_path).put(Broken(), "m.tflite")
    assert files(tmp_path) == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "A" * 64, "0" * 63, "0" * 64 + "\n"])
def test_only_a_sha256_names_an_artifact(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a sha256"):
        Store(tmp_path).find(name)


def test_a_link_is_no_artifact(tmp_path: Path) -> None:
    target = tmp_path / "sha256" / SHA256[:2] / SHA256
    target.parent.mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_bytes(CONTENT)
    target.symlink_to(secret)
    assert Store(tmp_path).find(SHA256) is None
    with pytest.raises(FarmError, match="no artifact"):
        Store(tmp_path).path(SHA256)
    with pytest.raises(FileNotFoundError):
        Store(tmp_path).open(SHA256)
    Store(tmp_path).put(io.BytesIO(CONTENT), "m")
    assert not target.is_symlink()


def test_the_free_space_that_is_kept_is_not_used_up_in_the_middle_of_a_file(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits(free_bytes=1 << 55))
    with pytest.raises(FarmError, match="are kept free"):
        store.put(io.BytesIO(CONTENT), "m.tflite")
    assert files(tmp_path) == []


def test_an_artifact_is_opened_by_its_hash_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(io.BytesIO(CONTENT), "m")
    with store.open(SHA256) as file:
        assert file.read() == CONTENT
    with pytest.raises(FileNotFoundError):
        store.open("0" * 64)
    with pytest.raises(ValueError, match="not a sha256"):
        store.open("../" + "0" * 61)


def test_a_process_without_descriptors_does_not_say_that_an_artifact_is_missing(
    tmp_path, monkeypatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(OSError, match="Too many open files"):
        Store(tmp_path).open("0" * 64)


def test_the_collector_waits_for_those_who_use_the_store_and_they_for_it(tmp_path: Path) -> None:
    store, order = Store(tmp_path), []

    def collect() -> None:
        with store.collecting():
            order.append("collected")

    with store.in_use(), Store(tmp_path).in_use():
        collector = threading.Thread(target=collect)
        collector.start()
        collector.join(0.2)
        order.append("used")
    collector.join(30)
    assert order == ["used", "collected"]


@pytest.mark.parametrize("way", ["put", "adopt"])
def test_an_artifact_survives_a_power_cut_and_is_never_there_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    store, disk = Store(tmp_path), Disk(tmp_path, monkeypatch)
    if way == "put":
        store.put(io.BytesIO(CONTENT), "m")
    else:
        store.incoming(SHA256).write_bytes(CONTENT)
        store.adopt(SHA256, "m")
    assert disk.unsafe_renames == []
    assert disk.after_a_power_cut() == {f"sha256/{SHA256[:2]}/{SHA256}": CONTENT}


def test_a_file_of_just_the_limit_is_stored(tmp_path: Path) -> None:
    store = Store(tmp_path, max_bytes=len(CONTENT))
    assert store.put(io.BytesIO(CONTENT), "m").size_bytes == len(CONTENT)
    assert store.find("0" * 64) is None
    (tmp_path / "sha256" / "00" / ("0" * 64)).mkdir(parents=True)
    assert store.find("0" * 64) is None


def test_what_a_sender_brought_counts_as_its_bytes_and_nobody_elses(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.incoming(SHA256, "user ana").write_bytes(CONTENT)
    store.adopt(SHA256, "m", sender="user ana")
    assert (store.bytes_of_sender("user ana"), store.bytes_of_sender("user eve")) == (len(CONTENT), 0)
    for pattern in ("*", f"../unnamed/{SHA256}"):
        with pytest.raises(ValueError, match="not a sha256"):
            store.named(pattern)
    assert store.bytes_of_sender("user ana") == len(CONTENT)
    store.incoming(SHA256).write_bytes(CONTENT)
    store.adopt(SHA256, "m")
    assert store.bytes_of_sender("") == 0


def test_what_arrived_in_pieces_is_stored_under_its_hash_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.incoming(SHA256).write_bytes(CONTENT)
    assert store.adopt(SHA256, "m").size_bytes == len(CONTENT)
    assert store.path(SHA256).stat().st_mode & 0o222 == 0
    store.incoming("0" * 64).write_bytes(CONTENT)
    with pytest.raises(UsageError, match="wrong sha256"):
        store.adopt("0" * 64, "m")
    assert store.find("0" * 64) is None
    assert store.size_of_incoming("0" * 64) == 0


def test_content_that_is_not_what_is_required_is_not_stored(tmp_path: Path) -> None:
    read: list[bytes] = []

    def refuse(file: BinaryIO, what: str) -> None:
        read.append(file.read())
        raise UsageError(f"{what} is no model")

    store = Store(tmp_path)
    with pytest.raises(UsageError, match="m is no model"):
        store.put(io.BytesIO(CONTENT), "m", require=refuse)
    store.incoming(SHA256).write_bytes(CONTENT)
    with pytest.raises(UsageError, match="m is no model"):
        store.adopt(SHA256, "m", require=refuse)
    assert read == [CONTENT, CONTENT], "the whole content, from its beginning"
    assert files(tmp_path) == []


def test_the_shortest_content_is_there_when_it_is_looked_at(tmp_path: Path) -> None:
    read: list[bytes] = []
    Store(tmp_path).put(io.BytesIO(b"TFL3"), "m", require=lambda file, _: read.append(file.read()))
    assert read == [b"TFL3"]


def test_content_that_is_what_is_required_is_stored(tmp_path: Path) -> None:
    def begins(file: BinaryIO, what: str) -> None:
        assert file.read(7) == b"a model", what

    store = Store(tmp_path)
    store.incoming(SHA256).write_bytes(CONTENT)
    assert store.adopt(SHA256, "m", require=begins) == store.put(io.BytesIO(CONTENT), "m", require=begins)
    assert store.path(SHA256).read_bytes() == CONTENT
