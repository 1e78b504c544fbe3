"""The delegate's files on disk: what is damaged, foreign, full or shared never does harm."""

import logging
import os
import subprocess
import sys
import time

import pytest

from runtime.common.durable import is_draft
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.keep.cache import LIMIT_BYTES, open_cache

LONG_AGO_S = 7200.0


def aged(path):
    """Age the path, as if its last use were two hours ago."""
    then = time.time() - LONG_AGO_S
    os.utime(path, (then, then))
    return path


def test_an_entry_comes_back_as_it_was_and_without_a_folder_nothing_is_kept(tmp_path):
    open_cache(tmp_path / "c").write("programs", "k", b"\0binary\n")
    assert open_cache(tmp_path / "c").read("programs", "k") == b"\0binary\n"
    assert open_cache(tmp_path / "c").read("programs", "other") is None
    nowhere = open_cache(None)
    nowhere.write("programs", "k", b"x")
    assert nowhere.read("programs", "k") is None


@pytest.mark.parametrize("damage", ["changed", "cut", "emptied", "of an older form"])
def test_a_damaged_entry_is_removed_and_counts_as_absent(tmp_path, damage):
    cache = open_cache(tmp_path)
    cache.write("programs", "k", b"binary of the driver")
    path = cache.path("programs", "k")
    whole = path.read_bytes()
    path.write_bytes(
        {
            "changed": whole.replace(b"driver", b"daemon"),
            "cut": whole[:-3],
            "emptied": b"",
            "of an older form": b"binary of the driver",
        }[damage]
    )
    assert cache.read("programs", "k") is None
    assert not path.exists()
    cache.write("programs", "k", b"again")
    assert cache.read("programs", "k") == b"again"


def test_the_folder_and_its_files_are_closed_to_others(tmp_path):
    folder = tmp_path / "cache"
    open_cache(folder).write("tuning", "k", b"x")
    assert [oct(p.stat().st_mode & 0o777) for p in (folder, folder / "tuning", folder / "tuning" / "k")] == [
        "0o700",
        "0o700",
        "0o600",
    ]
    folder.chmod(0o777)
    assert open_cache(folder).read("tuning", "k") == b"x"
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_used_and_one_line_says_so(tmp_path, caplog):
    tmp_path.chmod(0o777)
    os.chown(tmp_path, 65534, 65534)
    with caplog.at_level(logging.WARNING):
        cache = open_cache(tmp_path)
    assert cache.folder is None
    (line,) = caplog.messages
    assert f"{tmp_path} belongs to user 65534" in line
    assert "FARM_CACHE_DIR" in line


def test_a_folder_that_cannot_be_made_is_said_in_the_settings_of_a_result(caplog):
    delegate = GpuDelegate({"cache_dir": "/proc/no/such/folder", "tuning": "none"})
    assert "/proc/no/such/folder cannot be used" in delegate.describe()["cache"]
    assert len(caplog.messages) == 1


_FULL = """
import resource, sys
from pathlib import Path
from runtime.common.durable import is_draft
from runtime.delegates.gpu.keep.cache import open_cache
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
cache = open_cache(Path(sys.argv[1]))
for _ in range(3):
    cache.write("programs", "k", bytes(1 << 16))
print(cache.fault, cache.read("programs", "k"), list(Path(sys.argv[1]).rglob("*")))
"""


def test_a_full_disk_costs_the_entry_alone_and_is_said_once(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (
        f"{tmp_path} cannot be written to (File too large) None [{tmp_path / 'programs'!r}]"
    )
    assert done.stderr.count("cannot be written to") == 1


def test_what_a_killed_writer_left_is_removed_with_the_next_write(tmp_path):
    cache = open_cache(tmp_path)
    (tmp_path / "programs").mkdir()
    (tmp_path / "pocl").mkdir()
    (tmp_path / "compiling" / "tmpdef" / "pocl").mkdir(parents=True)
    left = [
        tmp_path / "programs" / ".key.0123.tmp",
        tmp_path / "pocl" / "tempfile_xyz",
        tmp_path / "compiling" / "tmpdef" / "pocl" / "program.bc",
    ]
    young = tmp_path / "programs" / ".other.4567.tmp"
    for path in (*left, young):
        path.write_bytes(b"half")
    for path in (*left, left[-1].parent, left[-1].parent.parent):
        aged(path)
    cache.write("programs", "k", b"x")
    assert [path.exists() for path in left] == [False, False, False]
    assert list((tmp_path / "compiling").iterdir()) == []
    assert young.exists()


def test_above_the_limit_the_least_recently_used_entries_go_and_used_ones_stay(tmp_path):
    cache = open_cache(tmp_path, limit_bytes=40_000)
    for name in "abcd":
        cache.write("programs", name, bytes(10_000))
    program = tmp_path / "pocl" / "EJ" / "FBIC"
    program.mkdir(parents=True)
    (program / "run_layers.so").write_bytes(bytes(10_000))
    for path in (cache.path("programs", "a"), cache.path("programs", "b")):
        aged(path)
    for path in (program / "run_layers.so", program, program.parent):
        aged(path)
    assert cache.read("programs", "b") is not None  # its last use is now
    cache.sweep()
    kept = [name for name in "abcd" if cache.path("programs", name).exists()]
    assert kept == ["b", "c", "d"]
    assert not program.exists()


def test_a_read_entry_counts_as_used(tmp_path):
    cache = open_cache(tmp_path)
    cache.write("tuning", "k", b"x")
    path = aged(cache.path("tuning", "k"))
    cache.read("tuning", "k")
    assert time.time() - path.stat().st_mtime < LONG_AGO_S / 2


def test_the_limit_is_far_above_what_one_model_leaves():
    assert LIMIT_BYTES >= 100 * (10 << 20)


_WRITER = """
import sys
from pathlib import Path
from runtime.common.durable import is_draft
from runtime.delegates.gpu.keep.cache import open_cache
cache = open_cache(Path(sys.argv[1]), limit_bytes=200_000)
mine = sys.argv[2].encode()
for turn in range(150):
    key = str(turn % 10)
    found = cache.read("programs", key)
    assert found is None or (len(found) == 30_000 and len(set(found)) == 1), len(found)
    cache.write("programs", key, mine * 30_000)
    cache.sweep()
assert not cache.fault, cache.fault
"""


@pytest.mark.slow
def test_eight_processes_share_a_folder(tmp_path):
    children = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path), str(number)]) for number in range(8)
    ]
    assert [child.wait(300) for child in children] == [0] * 8
    assert [path.name for path in (tmp_path / "programs").iterdir() if is_draft(path)] == []
