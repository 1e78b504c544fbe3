"""Runners that look for a way out: `python hostile_runners.py KIND JOB.json FOLDER`.

What each found is the `facts` of its result: `done` with what it got, or why it was refused. What it tries is
told by the test, as JSON in the variable `HOSTILE_TARGETS`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

TARGETS_VARIABLE = "HOSTILE_TARGETS"
FAR_BYTES = 9 << 30
"""More than the largest file that a runner may have, and less than any file system refuses."""
MANY = 1500
"""More threads than a runner may have, and fewer than trouble a host."""
NEW_USER = 0x10000000


def environment(_targets: dict[str, Any], _folder: Path) -> dict[str, str]:
    return dict(os.environ)


def liar(_targets: dict[str, Any], _folder: Path) -> dict[str, str]:
    return {"sandbox": "perfect", "hostname": "elsewhere", "mine": "kept"}


def core(_targets: dict[str, Any], _folder: Path) -> dict[str, str]:
    return {"core": str(resource.getrlimit(resource.RLIMIT_CORE))}


def everything(targets: dict[str, Any], folder: Path) -> dict[str, str]:
    """Try every way out, and what a runner needs."""
    found = {name: _tried(_read, path) for name, path in targets["read"].items()}
    found |= {name: _tried(_write, path) for name, path in targets["write"].items()}
    agent = os.getppid()
    own = Path(os.environ["TMPDIR"])
    job = json.loads(Path(sys.argv[2]).read_text())
    ways: dict[str, Callable[[], str]] = {
        "agent_environment": lambda: _read(f"/proc/{agent}/environ"),
        "agent_memory": lambda: str(os.close(os.open(f"/proc/{agent}/mem", os.O_RDONLY))),
        "signal_agent": lambda: str(os.kill(agent, 0)),
        "signal_other": lambda: str(os.kill(targets["pid"], 0)),
        "tcp": lambda: _connect(socket.AF_INET, socket.SOCK_STREAM, tuple(targets["tcp"])),
        "udp": lambda: _connect(socket.AF_INET, socket.SOCK_DGRAM, tuple(targets["udp"])),
        "unix": lambda: _connect(socket.AF_UNIX, socket.SOCK_STREAM, targets["unix"]),
        "unix_datagram": lambda: _connect(socket.AF_UNIX, socket.SOCK_DGRAM, targets["unix_datagram"]),
        "abstract": lambda: _connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + targets["abstract"]),
        "huge_file": lambda: str(os.truncate(_touched(folder / "huge"), FAR_BYTES)),
        "empty": lambda: str(os.truncate(targets["kept"], 6)),
        "empty_the_log": lambda: str(os.truncate(folder.parents[1] / "runs.log", 0)),
        "write_into_the_log": lambda: _write(str(folder.parents[1] / "runs.log")),
        "kernel_keys": lambda: str(os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY))),
        "first_process": lambda: str(Path("/proc/1").stat().st_uid),
        "modes": lambda: _changed(targets["kept"], lambda path: Path(path).chmod(0o777)),
        "modes_by_descriptor": lambda: _changed(targets["kept"], _open_to_all),
        "times": lambda: _changed(targets["kept"], lambda path: os.utime(path, (1, 1))),
        "touch": lambda: _changed(targets["kept"], os.utime),
        "owner": lambda: str(os.chown(targets["kept"], -1, os.getgid())),
        "attributes": lambda: str(os.setxattr(targets["kept"], "user.evil", b"x")),
        "limits_of_the_agent": lambda: str(resource.prlimit(agent, resource.RLIMIT_CPU, (900, 900))),
        "priority_of_the_agent": lambda: str(os.setpriority(os.PRIO_PROCESS, agent, 1)),
        "scheduler_of_the_agent": lambda: _schedule(agent),
        "cpus_of_the_agent": lambda: _bind(agent),
        "memory_by_key": lambda: _by_key("shmget", targets["key"], 4096),
        "semaphores_by_key": lambda: _by_key("semget", targets["key"], 1),
        "messages_by_key": lambda: _by_key("msgget", targets["key"]),
        "fork_bomb": _many_threads,
        "user_namespace": _new_user_namespace,
        "setuid_program": lambda: _run(targets["setuid"], "-u"),
        "own_folder": lambda: _write(str(folder / "mine")),
        "own_temporary": lambda: _write(str(own / "mine")),
        "own_shared_memory": lambda: _write(f"/dev/shm/farm-{os.getpid()}"),
        "null": lambda: _write("/dev/null"),
        "own_process": lambda: _run(sys.executable, "-c", "import numpy; print(numpy.ones(2).sum())"),
        "namespaces": lambda: " ".join(
            str(Path("/proc/self/ns", kind).readlink()) for kind in ("net", "mnt", "ipc")
        ),
        "user": lambda: " ".join(map(str, {*os.getresuid(), *os.getresgid()})),
        "own_pair": lambda: str(len([end.close() for end in socket.socketpair()])),
    }
    found |= {name: _tried(way) for name, way in ways.items()}
    found["model"] = _tried(_read, job["model_path"])
    found["own_references"] = _tried(_write, f"{job['references']}/evil")
    found["capabilities"] = " ".join(
        line.split()[1]
        for line in Path("/proc/self/status").read_text().splitlines()
        if line[:6] in ("CapInh", "CapPrm", "CapEff", "CapAmb")
    )
    return found


def _tried(way: Callable[..., str], *arguments: str) -> str:
    try:
        return f"done: {way(*arguments)}"[:200]
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return f"refused: {error}"


def _read(path: str) -> str:
    with Path(path).open("rb") as file:
        return str(file.read(20))


def _write(path: str) -> str:
    with Path(path).open("w") as file:
        return str(file.write("x"))


def _changed(path: str, change: Callable[[str], object]) -> str:
    """Change what a file says of itself."""
    before = Path(path).stat()
    change(path)
    after = Path(path).stat()
    if (before.st_mode, before.st_mtime_ns) == (after.st_mode, after.st_mtime_ns):
        raise PermissionError("without effect")
    return oct(after.st_mode)


def _open_to_all(path: str) -> None:
    """Change the mode by a descriptor that opened nothing, as by one that did."""
    held = os.open(path, os.O_PATH)
    Path(f"/proc/self/fd/{held}").chmod(0o770)
    os.close(held)


def _schedule(pid: int) -> str:
    """Make a process run when nobody else wants to, and take it back."""
    os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))
    os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
    return "batch"


def _bind(pid: int) -> str:
    before = os.sched_getaffinity(pid)
    os.sched_setaffinity(pid, {min(before)})
    after = os.sched_getaffinity(pid)
    os.sched_setaffinity(pid, before)
    if after == before and len(before) > 1:
        raise PermissionError("without effect")
    return str(after)


def _by_key(name: str, key: int, *size: int) -> str:
    """Make what outlives this process, and remove it again."""
    libc = ctypes.CDLL(None, use_errno=True)
    made = getattr(libc, name)(key, *size, 0o1600)
    if made < 0:
        raise OSError(ctypes.get_errno(), name)
    remove = getattr(libc, name.replace("get", "ctl"))
    remove(made, *((0,) if name == "semget" else ()), 0, None)
    return str(made)


def _touched(path: Path) -> Path:
    path.touch()
    return path


def _connect(family: int, kind: int, address: Any) -> str:
    with socket.socket(family, kind) as one:
        one.settimeout(5)
        if kind == socket.SOCK_DGRAM:
            return str(one.sendto(b"out", address))
        one.connect(address)
        return "connected"


def _many_threads() -> str:
    threading.stack_size(64 << 10)
    gate = threading.Event()
    threads = [threading.Thread(target=gate.wait, daemon=True) for _ in range(MANY)]
    started = []
    try:
        for thread in threads:
            thread.start()
            started.append(thread)
    finally:
        gate.set()
        for thread in started:
            thread.join()
    return str(MANY)


def _new_user_namespace() -> str:
    child = os.fork()
    if child == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        os._exit(0 if libc.unshare(NEW_USER) == 0 else ctypes.get_errno())
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))
    return "made"


def _run(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


if __name__ == "__main__":
    work = Path(sys.argv[3])
    found = globals()[sys.argv[1]](json.loads(os.environ.get(TARGETS_VARIABLE, "{}")), work)
    with contextlib.suppress(OSError):
        (work / "huge").unlink()
    (work / "result.json").write_text(json.dumps({"status": "done", "reason": None, "facts": found}))
