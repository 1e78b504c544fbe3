"""Files of this machine that can be a source: a campaign file may name any that its submitter can read."""

from __future__ import annotations

import os
import socket
import zipfile
from pathlib import Path

import numpy as np
import pytest

from orchestrator.errors import UsageError
from orchestrator.manifest.campaign import DataEntry, ModelEntry
from orchestrator.sources import files as module
from orchestrator.sources.resolve import check_all, resolve, resolve_all
from orchestrator.sources.store import Store, TooLargeError

MODEL = b"\x1c\x00\x00\x00TFL3" + bytes(range(200))
SECRET = b"wheel:$6$saltsalt$abcdefghijk:19000:0:99999:7:::\n"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def refused(source: str | Path, folder: Path, store: Store) -> str:
    """Why the source is refused: in one line, at the check and at the copy alike, and nothing is stored."""
    entry = ModelEntry("m", str(source))
    with pytest.raises(UsageError) as at_check:
        check_all([entry], folder)
    with pytest.raises(UsageError) as at_copy:
        resolve(entry, store, folder)
    assert not store.root.exists() or not [p for p in store.root.rglob("*") if p.is_file()]
    (line,) = str(at_check.value).splitlines()
    assert str(at_copy.value) == line
    return line


@pytest.mark.parametrize(
    "path",
    ["/proc/self/environ", "/proc/self/mem", "/proc/kcore", "/sys/kernel/uevent_seqnum", "/proc/version"],
)
def test_a_file_of_the_kernel_is_refused(tmp_path: Path, store: Store, path: str) -> None:
    if not Path(path).exists():
        pytest.skip(f"this kernel has no {path}")
    text = refused(path, tmp_path, store)
    assert text.startswith(f"{path}")
    assert "file system of the kernel" in text or "cannot be read" in text


def test_a_pipe_a_socket_and_a_device_are_refused_and_nobody_waits(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe.tflite")
    os.mkfifo(tmp_path / "pipe.skel")
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket.tflite")
        assert "not a file but a named pipe" in refused("pipe.tflite", tmp_path, store)
        assert "not a file but a named pipe" in refused("pipe.skel", tmp_path, store)
        assert "socket.tflite" in refused("socket.tflite", tmp_path, store)
        assert "not a file but a device" in refused("/dev/zero", tmp_path, store)
        assert "not a file but a folder" in refused(".", tmp_path, store)


@pytest.mark.parametrize("suffix", ["tflite", "skel", "npz"])
def test_a_file_of_another_kind_is_neither_stored_nor_quoted(
    tmp_path: Path, store: Store, suffix: str
) -> None:
    for content in (SECRET, b"", b"TFL3", SECRET[:4] + b"TFL", b"\x1f\x8b" + SECRET, b"PK\x03\x04" + SECRET):
        path = tmp_path / f"secret.{suffix}"
        path.write_bytes(content)
        text = refused(path, tmp_path, store)
        assert str(path) in text
        for part in ("wheel", "salt", "abcdef", "19000", repr(content[:4])):
            assert part not in text


def test_labelled_data_of_another_kind_is_neither_stored_nor_quoted(tmp_path: Path, store: Store) -> None:
    (tmp_path / "m.tflite").write_bytes(MODEL)
    path = tmp_path / "data.npz"
    entry = ModelEntry("m", "m.tflite", data=DataEntry("data.npz", None))
    path.write_bytes(SECRET)
    with pytest.raises(UsageError, match="this file is neither") as caught:
        check_all([entry], tmp_path)
    assert "wheel" not in str(caught.value)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("my-passwords.txt", "secret")
    with pytest.raises(UsageError, match="this has neither") as caught:
        check_all([entry], tmp_path)
    assert "passwords" not in str(caught.value)
    np.savez(path, labels=np.arange(3), inputs=np.zeros(3))
    with pytest.raises(UsageError, match="not a model"):
        check_all([ModelEntry("m", "data.npz")], tmp_path)
    assert not store.root.exists()


def test_a_link_is_followed_and_an_error_says_where_to(tmp_path: Path, store: Store) -> None:
    (tmp_path / "real.tflite").write_bytes(MODEL)
    (tmp_path / "link.tflite").symlink_to("real.tflite")
    assert resolve(ModelEntry("m", "link.tflite"), store, tmp_path).size_bytes == len(MODEL)
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "bad.tflite").symlink_to("secret")
    with pytest.raises(UsageError) as caught:
        check_all([ModelEntry("m", "bad.tflite")], tmp_path)
    assert f"{tmp_path / 'bad.tflite'} (a link to {tmp_path / 'secret'}): not a model" in str(caught.value)
    (tmp_path / "proc.tflite").symlink_to("/proc/self/environ")
    with pytest.raises(UsageError, match=r"proc\.tflite \(a link to /proc/\d+/environ\): lies in proc"):
        check_all([ModelEntry("m", "proc.tflite")], tmp_path)


def test_a_huge_file_is_refused_by_its_size_and_not_read(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sparse.tflite"
    path.write_bytes(MODEL)
    os.truncate(path, 3 << 40)
    before = _read_bytes()
    for entry in (ModelEntry("m", "sparse.tflite"), ModelEntry("m", "sparse.tflite", sha256="0" * 64)):
        with pytest.raises(
            TooLargeError, match=rf"larger than {2 << 30} bytes: it has {3 << 40}; .*FARM_ART"
        ):
            check_all([entry], tmp_path)
        with pytest.raises(TooLargeError, match=r"sparse\.tflite: larger than 100 bytes"):
            check_all([entry], tmp_path, most_bytes=100)
    assert "larger than" in refused("sparse.tflite", tmp_path, store)
    assert _read_bytes() - before < 1 << 20


def test_a_huge_skeleton_is_refused_by_its_size_and_not_read(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "sparse.skel"
    path.touch()
    os.truncate(path, 3 << 40)
    before = _read_bytes()
    assert f"larger than {module.MAX_SKELETON_BYTES} bytes: it has {3 << 40}" in refused(
        path, tmp_path, store
    )
    assert _read_bytes() - before < 1 << 20


def test_the_file_that_was_checked_is_the_file_that_is_stored(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name leads to a secret as soon as the file is open: what was opened is read all the same."""
    path, secret = tmp_path / "m.tflite", tmp_path / "secret"
    path.write_bytes(MODEL)
    secret.write_bytes(SECRET)
    checked = check_all([ModelEntry("m", "m.tflite")], tmp_path)
    inspect = module._require_users_file

    def exchange(*what: object) -> None:
        inspect(*what)  # type: ignore[arg-type]
        path.unlink(missing_ok=True)
        path.symlink_to(secret)

    monkeypatch.setattr(module, "_require_users_file", exchange)
    (found,) = resolve_all(checked, store)
    assert store.path(found.sha256).read_bytes() == MODEL


def test_a_pin_does_not_turn_something_else_of_the_store_into_a_model(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "samples.json"
    path.write_bytes(b"[1, 2, 3]")
    with path.open("rb") as file:
        samples = store.put(file, "samples")
    (tmp_path / "m.tflite").write_bytes(MODEL)
    for source in ("zoo:torchvision_resnet18", "https://example.org/m.tflite"):
        with pytest.raises(UsageError, match=r"not a model|wrong sha256"):
            resolve(ModelEntry("m", source, sha256=samples.sha256), store, tmp_path)


def _read_bytes() -> int:
    """Bytes that this process has read so far (proc_pid_io(5))."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])
