"""Files are replaced as a whole or not at all, and locks exclude each other."""

from __future__ import annotations

import errno
import math
import os
import resource
import signal
import threading
from contextlib import contextmanager

import pytest

from runtime.common import durable
from runtime.common.durable import create_once, is_draft, lock_file, open_lock, replacing, write_atomically
from tests.power_cut import Disk

BEFORE, AFTER = b"before", b"after" * 1000


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "result.json"
    found.write_bytes(BEFORE)
    return found


@contextmanager
def a_full_disk(_monkeypatch):
    """No file may grow beyond a kilobyte: the kernel refuses a write in the middle of the contents."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    # As Python sets it at its start; where an earlier test took that back, the signal would end this process.
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, former[1]))
    try:
        yield errno.EFBIG
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
        signal.signal(signal.SIGXFSZ, handler)


def fails(name, code):
    @contextmanager
    def with_failure(monkeypatch):
        def fail(*_, **__):
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, name, fail)
        yield code

    return with_failure


FAILURES = {
    "a full disk": a_full_disk,
    "a full disk that shows late": fails("fsync", errno.ENOSPC),
    "another file system": fails("replace", errno.EXDEV),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_an_error_in_the_middle_surfaces_and_leaves_the_former_contents_alone(path, failure, monkeypatch):
    with failure(monkeypatch) as code, pytest.raises(OSError, match=os.strerror(code)) as caught:
        write_atomically(path, AFTER)
    assert caught.value.errno == code
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == {path.name: BEFORE}


@pytest.mark.parametrize("sync", [True, False])
def test_whoever_stops_in_the_middle_leaves_the_former_contents_alone(path, sync):
    class Stopped(BaseException):
        pass

    def stop(draft):
        draft.write(AFTER)
        assert sorted(map(is_draft, path.parent.iterdir())) == [False, True]
        raise Stopped

    with pytest.raises(Stopped), replacing(path, sync=sync) as draft:
        stop(draft)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == {path.name: BEFORE}


def test_a_file_is_replaced_as_a_whole_and_survives_a_power_cut(path, monkeypatch):
    disk = Disk(path.parent, monkeypatch)
    with path.open("rb") as reader:
        write_atomically(path, AFTER)
        assert reader.read() == BEFORE
    assert disk.unsafe_renames == []
    assert disk.after_a_power_cut() == {path.name: AFTER}


def test_without_sync_nothing_waits_for_the_disk(path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: pytest.fail("it waits for the disk"))
    write_atomically(path, AFTER, sync=False)
    assert path.read_bytes() == AFTER


def test_new_folders_above_survive_a_power_cut_with_the_file(tmp_path, monkeypatch):
    disk = Disk(tmp_path, monkeypatch)
    path = tmp_path / "a" / "b" / "file"
    path.parent.mkdir(parents=True)
    with replacing(path, top=tmp_path) as draft:
        draft.write(AFTER)
    assert disk.after_a_power_cut() == {"a/b/file": AFTER}


@pytest.mark.parametrize("umask", [0o022, 0o077])
@pytest.mark.parametrize("mode", [None, 0o644, 0o600, 0o400])
def test_a_mode_that_is_named_holds_whatever_the_umask(path, mode, umask):
    former = os.umask(umask)
    try:
        write_atomically(path, AFTER, mode)
    finally:
        os.umask(former)
    assert path.stat().st_mode & 0o777 == (0o666 & ~umask if mode is None else mode)


def test_a_file_that_others_may_not_read_is_never_open_to_them(tmp_path, monkeypatch):
    first_modes = []
    monkeypatch.setattr(os, "fchmod", lambda file, _: first_modes.append(os.fstat(file).st_mode & 0o777))
    former = os.umask(0)
    try:
        write_atomically(tmp_path / "secret", AFTER, 0o600)
    finally:
        os.umask(former)
    assert first_modes == [0o600]


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(path):
    link = path.with_name("link")
    link.symlink_to(path)
    write_atomically(link, AFTER)
    assert (link.is_symlink(), link.read_bytes(), path.read_bytes()) == (False, AFTER, BEFORE)


def test_of_two_that_make_a_file_at_once_one_wins_and_nothing_else_is_left(tmp_path, monkeypatch):
    path = tmp_path / "key"
    disk = Disk(tmp_path, monkeypatch)
    for data in (b"first", b"second"):
        create_once(path, data, 0o640)
    assert path.stat().st_mode & 0o777 == 0o640
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("key", b"first")]
    assert disk.after_a_power_cut()["key"] == b"first"


@pytest.mark.parametrize(
    ("held_shared", "wanted_shared", "is_free"),
    [(False, False, False), (False, True, False), (True, False, False), (True, True, True)],
)
def test_locks_exclude_each_other_unless_both_are_shared(tmp_path, held_shared, wanted_shared, is_free):
    path = tmp_path / "lock"
    with open_lock(path, shared=held_shared):
        assert path.stat().st_mode & 0o777 == 0o600
        if is_free:
            open_lock(path, shared=wanted_shared).close()
        else:
            with pytest.raises(BlockingIOError):
                open_lock(path, shared=wanted_shared)
    open_lock(path).close()


@pytest.mark.parametrize("wait_s", [60.0, math.inf])
def test_who_waits_for_a_lock_gets_it_when_it_is_free(tmp_path, wait_s):
    path = tmp_path / "lock"
    holder, taken = open_lock(path), threading.Event()

    def wait():
        with open_lock(path, wait_s=wait_s):
            taken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not taken.wait(0.2)
    holder.close()
    thread.join(60.0)
    assert taken.is_set()


def test_who_waits_for_a_lock_waits_no_longer_than_it_may(tmp_path, monkeypatch):
    clock = iter([0.0, 0.1, 0.2])
    with open_lock(tmp_path / "lock"), (tmp_path / "lock").open("rb") as other:
        monkeypatch.setattr(durable.time, "monotonic", lambda: next(clock))
        monkeypatch.setattr(durable.time, "sleep", lambda _: None)
        with pytest.raises(BlockingIOError):
            lock_file(other.fileno(), wait_s=0.2)
    assert list(clock) == []


def test_no_child_inherits_a_lock(tmp_path):
    with open_lock(tmp_path / "lock") as file:
        assert not os.get_inheritable(file.fileno())
