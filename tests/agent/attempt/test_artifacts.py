"""Nothing is measured or stored that is not what its name says."""

from __future__ import annotations

import errno
import hashlib
import os

import pytest

from agent.attempt.artifacts import ArtifactError, put_artifact, verified_file
from agent.wire.messages import artifact_path
from tests.power_cut import Disk

DATA = b"model" * 1000
SHA = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def store(tmp_path):
    path = artifact_path(tmp_path, SHA)
    path.parent.mkdir(parents=True)
    path.write_bytes(DATA)
    return tmp_path


def test_intact_model_is_found(store):
    assert verified_file(store, SHA, len(DATA)) == artifact_path(store, SHA)


def test_missing_model_is_refused(store):
    with pytest.raises(ArtifactError, match="not in the store"):
        verified_file(store, "1" * 64, len(DATA))


def test_truncated_model_is_refused(store):
    artifact_path(store, SHA).write_bytes(DATA[:-1])
    with pytest.raises(ArtifactError, match="has 4999 bytes in the store, expected 5000"):
        verified_file(store, SHA, len(DATA))


def test_model_with_a_flipped_bit_is_refused(store):
    artifact_path(store, SHA).write_bytes(b"M" + DATA[1:])
    with pytest.raises(ArtifactError, match="damaged"):
        verified_file(store, SHA, len(DATA))


def test_link_is_refused(store, tmp_path):
    path = artifact_path(store, SHA)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArtifactError, match="not in the store"):
        verified_file(store, SHA, len(DATA))


def test_artifact_is_stored_under_its_hash(tmp_path):
    source = tmp_path / "samples.json"
    source.write_bytes(DATA)
    put_artifact(tmp_path / "store", source, SHA)
    put_artifact(tmp_path / "store", source, SHA)
    assert artifact_path(tmp_path / "store", SHA).read_bytes() == DATA


def test_artifact_that_differs_from_its_hash_leaves_nothing_behind(tmp_path):
    source = tmp_path / "samples.json"
    source.write_bytes(DATA + b"!")
    with pytest.raises(ArtifactError, match=r"samples\.json: expected"):
        put_artifact(tmp_path / "store", source, SHA)
    assert [p for p in (tmp_path / "store").rglob("*") if p.is_file()] == []


@pytest.mark.parametrize("content", [DATA, b"less than a buffer"])
def test_a_stored_artifact_survives_a_power_cut_and_is_never_there_in_part(tmp_path, monkeypatch, content):
    sha256 = hashlib.sha256(content).hexdigest()
    source = tmp_path / "samples.json"
    source.write_bytes(content)
    store = tmp_path / "store"
    store.mkdir()
    disk = Disk(store, monkeypatch)
    put_artifact(store, source, sha256)
    assert disk.unsafe_renames == []
    assert disk.after_a_power_cut() == {f"sha256/{sha256[:2]}/{sha256}": content}


def test_a_process_without_descriptors_says_so_and_does_not_blame_the_model(store, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(OSError, match="Too many open files"):
        verified_file(store, "0" * 64, 1)
