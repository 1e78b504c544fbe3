"""Processes of a runner: one that decides, and its arms. `python arms.py NAME FOLDER [WORD ...]`.

`decide` starts two arms beside each other: a `victim` that waits, and an `attacker` that writes what it
found, for each way `done` or why it was refused. The last word `closed` puts both into inner boundaries.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from agent.processes.sandbox.inner import InnerBoundary
from agent.processes.supervisor import Launch, start
from runtime.measure import memory

LIBC = ctypes.CDLL(None, use_errno=True)
IOPRIO_SET = {"x86_64": 251, "aarch64": 30}[os.uname().machine]
SEIZE = 0x4206
SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
VICTIMS_FILES = ("whole", "emptied", "removed", "moved", "linked", "leased")
FOLDERS = ("victim", "attacker", "cache")


def started(name: str, folder: Path, *words: str, inner: InnerBoundary | None) -> subprocess.Popen[bytes]:
    """One of these processes, as the leader of a group of its own."""
    command = [sys.executable, "-P", __file__, name, str(folder), *words]
    (folder / name).mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(folder / name)}
    return start(Launch(command, environment, folder / name, own_group=True, inner=inner))


def decide(folder: Path, closed: str) -> None:
    for name in FOLDERS:
        (folder / name).mkdir()
    for name in VICTIMS_FILES:
        (folder / "victim" / name).write_text("kept")
    (folder / "decided").write_text("kept")
    (folder / "lines").write_text("line\n")
    written = (folder / "attacker", folder / "cache")
    both: tuple[InnerBoundary | None, ...] = (None, None)
    if closed == "closed":
        both = (InnerBoundary((folder / "victim",)), InnerBoundary(written, append=(folder / "lines",)))
    shared(os.getpid()).write_text("kept")
    try:
        victim = started("victim", folder, inner=both[0])
        attacker = started("attacker", folder, str(victim.pid), inner=both[1])
        code = attacker.wait(60)
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait(60)
    finally:
        shared(os.getpid()).unlink()
    sys.exit(code)


def shared(decider: int) -> Path:
    """Return a file in the memory that all processes of a runner share."""
    return Path(f"/dev/shm/farm-test-{decider}")


def victim(_folder: Path) -> None:
    time.sleep(600)


def attacker(folder: Path, word: str) -> None:
    """Try every way out of an arm, and what an arm needs."""
    found = {name: tried(way) for name, way in {**ways_out(folder, int(word)), **needs(folder)}.items()}
    (folder / "attacker" / "found").write_text(json.dumps(found))


def ways_out(folder: Path, pid: int) -> dict[str, Callable[[], object]]:
    other, own, group = folder / "victim", folder / "attacker", os.getpgid(pid)
    return {
        "make a file": lambda: (other / "evil").write_text("x"),
        "make a folder": (other / "folder").mkdir,
        "rewrite": lambda: os.close(os.open(other / "whole", os.O_WRONLY)),
        "rewrite what is decided": lambda: os.close(os.open(folder / "decided", os.O_WRONLY)),
        "empty": lambda: os.truncate(other / "emptied", 0),
        "empty lines": lambda: os.truncate(folder / "lines", 0),
        "remove": (other / "removed").unlink,
        "move away": lambda: (other / "moved").rename(own / "moved"),
        "link": lambda: (own / "linked").hardlink_to(other / "linked"),
        "close a folder": lambda: closed_to_its_owner(other),
        "close a folder by a descriptor": lambda: closed_by_descriptor(other),
        "access list": lambda: os.setxattr(other / "whole", "user.evil", b"x"),
        "lease": lambda: fcntl.fcntl(os.open(other / "leased", os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK),
        "shared memory": lambda: os.close(os.open(shared(os.getppid()), os.O_WRONLY)),
        "tmp": lambda: made_and_removed("/tmp"),
        "signal": lambda: os.kill(pid, 0),
        "stop": lambda: os.kill(pid, signal.SIGSTOP),
        "signal the group": lambda: os.killpg(group, 0),
        "signal who decides": lambda: os.kill(os.getppid(), 0),
        "signals of a file": lambda: fcntl.fcntl(os.open("/dev/null", os.O_RDONLY), fcntl.F_SETOWN, pid),
        "other CPUs": lambda: bound(pid),
        "priority": lambda: os.setpriority(os.PRIO_PROCESS, pid, 5),
        "priority of who decides": lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 1),
        "priority of the group": lambda: os.setpriority(os.PRIO_PGRP, group, 5),
        "priority of the disk": lambda: called(LIBC.syscall, IOPRIO_SET, 1, pid, 3 << 13),
        "limits": lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (9, 9)),
        "scheduler": lambda: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)),
        "scheduling": lambda: os.sched_setparam(pid, os.sched_param(0)),
        "trace": lambda: called(LIBC.ptrace, SEIZE, pid, 0, 0),
        "memory": lambda: os.close(os.open(f"/proc/{pid}/mem", os.O_WRONLY)),
        "signal by a descriptor": lambda: signal.pidfd_send_signal(os.open(f"/proc/{pid}", os.O_RDONLY), 0),
        "handle": lambda: os.close(os.pidfd_open(pid)),
        "killed first": lambda: written(f"/proc/{pid}/oom_score_adj", b"900"),
        "pages": lambda: written(f"/proc/{pid}/clear_refs", b"1"),
        "leave the group": lambda: forked(os.setsid),
        "change the group": lambda: forked(lambda: os.setpgid(0, group)),
    }


def needs(folder: Path) -> dict[str, Callable[[], object]]:
    own = folder / "attacker"
    one = [sys.executable, "-c", f"import numpy; open({str(own / 'child')!r}, 'w').write('x')"]
    return {
        "files": lambda: files(own),
        "cache": lambda: (folder / "cache/program").write_text("x"),
        "lines": lambda: written(str(folder / "lines"), b"more\n"),
        "read": (folder / "victim/whole").read_text,
        "copy with modes": lambda: shutil.copy2(__file__, own / "copy"),
        "null": lambda: Path("/dev/null").write_text("x"),
        "peak of memory": lambda: memory.reset_peak() or refuse(),
        "own CPUs": lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
        "own priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + 1),
        "own limits": lambda: resource.setrlimit(resource.RLIMIT_CPU, (900, 900)),
        "own signal": lambda: os.kill(os.getpid(), 0),
        "own group": lambda: os.killpg(0, 0),
        "a bound thread": bound_thread,
        "a child": lambda: subprocess.run(one, check=True, capture_output=True),
        "an end of a child": ended_child,
        "executable memory": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC).close(),
    }


def files(own: Path) -> None:
    (own / "a/b").mkdir(parents=True)
    (own / "file").write_text("x")
    (own / "file").rename(own / "a/b/file")
    (own / "a/link").hardlink_to(own / "a/b/file")
    (own / "a/soft").symlink_to("b/file")
    shutil.rmtree(own / "a")


def made_and_removed(folder: str) -> None:
    path = Path(folder, f"farm-test-{os.getpid()}")
    path.touch()
    path.unlink()


def closed_to_its_owner(path: Path) -> None:
    before = path.stat().st_mode
    path.chmod(0)
    after = path.stat().st_mode
    path.chmod(before)
    if after == before:
        refuse()


def closed_by_descriptor(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    before = os.fstat(descriptor).st_mode
    os.fchmod(descriptor, 0)
    after = os.fstat(descriptor).st_mode
    os.fchmod(descriptor, before)
    if after == before:
        refuse()


def bound(pid: int) -> None:
    before = os.sched_getaffinity(pid)
    os.sched_setaffinity(pid, {min(before)})
    after = os.sched_getaffinity(pid)
    if after == before:
        refuse()


def bound_thread() -> None:
    """Let a thread that is not the first one bind itself by its number, as libraries of threads do."""
    codes: list[int] = []
    mask = ctypes.create_string_buffer(b"\xff" * 128)
    LIBC.pthread_self.restype = ctypes.c_void_p

    def bind() -> None:
        this = ctypes.c_void_p(LIBC.pthread_self())
        codes.append(LIBC.pthread_setaffinity_np(this, ctypes.c_size_t(len(mask) - 1), mask))

    thread = threading.Thread(target=bind)
    thread.start()
    thread.join()
    if codes != [0]:
        raise OSError(codes[0], os.strerror(codes[0]))


def ended_child() -> None:
    with subprocess.Popen(SLEEP) as child:
        child.terminate()


def written(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, content)
    os.close(descriptor)


def forked(action: Callable[[], None]) -> None:
    child = os.fork()
    if child == 0:
        code = 0
        try:
            action()
        except OSError as error:
            code = error.errno or 1
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))


def called(function: Callable[..., int], *arguments: int) -> None:
    if function(*map(ctypes.c_long, arguments)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def refuse() -> None:
    raise PermissionError("without effect")


def tried(way: Callable[[], object]) -> str:
    try:
        way()
    except (OSError, subprocess.SubprocessError) as error:
        return f"refused: {error}"
    return "done"


WAYS_OUT = tuple(ways_out(Path(), os.getpid()))
NEEDS = tuple(needs(Path()))


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
