"""Runners and links as forks of the agent that starts them, which has imported what they import.

    supervisor.subprocess = CHILDREN  # in an agent's process

A runner imports for 0.4 s before it does anything, a link for longer, and the tests start some thousand. Here
each gets the arguments, the environment, the descriptors, the session or group and the boundary that a new
process would get. It has another past: its modules are the agent's, and its environment in /proc is that of
the fork server. Tests about that use the environment `known.ALONE`. What opens a driver of a GPU is a new
process, as are the children of that, and what is given another `PYTHONPATH` than its agent.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import logging
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import agent
from runtime.measure.loading import Opener
from tests.services.forks import starts_afresh

_PR_SET_DUMPABLE = 4
"""Of `prctl`, in `linux/prctl.h`: whether a process may use its own /proc after a change of its user. A new
program may.
"""


class _Fork(subprocess.Popen):
    """A program for Python that runs in a fork of this process. Its arguments are those of Python."""

    def _execute_child(
        self, words: Sequence[str], _executable: None, enter: Callable[[], None], _close: bool,
        inherited: Collection[int], _cwd: None, environment: Mapping[str, str], _info: None, _flags: int,
        _shell: bool, *more: Any,
    ) -> None:  # fmt: skip
        """Do as `subprocess.Popen` does, from descriptors that are open to a child that runs."""
        pipes, leads_session, group = more[:6], *more[-2:]
        told, telling = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(words, enter, environment, (pipes[0], pipes[3], pipes[5]), leads_session, group,
                    {*inherited, telling}, telling)  # fmt: skip
        self._child_created = True
        os.close(telling)
        with os.fdopen(told) as fault:
            text = fault.read()
        self._close_pipe_fds(*pipes)
        if text:
            self.wait()
            raise subprocess.SubprocessError(text)


def _become(
    words: Sequence[str],
    enter: Callable[[], None],
    environment: Mapping[str, str],
    files: tuple[int, int, int],
    leads_session: bool,
    group: int,
    inherited: set[int],
    telling: int,
) -> NoReturn:
    """Take over what a new process is given, and run the program to its end."""
    try:
        gc.freeze()  # What the agent's frames refer to is never garbage: they stay where they are.
        for number, descriptor in enumerate(files):
            os.dup2(descriptor, number)
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.set_wakeup_fd(-1)
        if leads_session:
            os.setsid()
        if group >= 0:
            os.setpgid(0, group)
        _close_all_but(inherited)
        enter()
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1)
    except BaseException as error:  # noqa: BLE001  # as between fork and exec
        os.write(telling, f"{type(error).__name__}: {error}".encode())
        os._exit(1)
    os.close(telling)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    atexit._clear()
    os._exit(_run(words))


def _run(words: Sequence[str]) -> int:
    """Run what stands behind `python`, and do what Python does at its end; return the exit code."""
    code: object = None
    try:
        match words:
            case ["-m", module, *arguments]:
                sys.argv = [module, *arguments]
                code = importlib.import_module(f"{module}.__main__").main(arguments)
            case ["-c", program, *arguments]:
                sys.argv = ["-c", *arguments]
                exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
            case [script, *_]:
                sys.argv = [*words]
                runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001  # as Python itself
        traceback.print_exc()
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else 0 if code is None else 1


def _close_all_but(kept: Collection[int]) -> None:
    """Close every descriptor that is neither kept nor a standard file."""
    for descriptor in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if descriptor > 2 and descriptor not in kept:
            with contextlib.suppress(OSError):  # the folder's own, which is closed by now
                os.close(descriptor)


def import_runners() -> None:
    """Import every module of the agent, and what runners need that open no driver."""
    for module in pkgutil.walk_packages(agent.__path__, "agent."):
        if "__main__" not in module.name:
            importlib.import_module(module.name)
    for kind in ("cpu", "litert"):
        Opener.prepare(kind, {})


def _start(command: Sequence[str], **given: Any) -> subprocess.Popen[bytes]:
    """Start a program as `agent.processes.supervisor` does by `subprocess.Popen`."""
    environment = given["env"]
    if environment.get("PYTHONPATH") == os.environ.get("PYTHONPATH"):  # a fork has the paths of this process
        environment = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    if command[0] != sys.executable or starts_afresh(environment) or any(map(_names_a_driver, command)):
        return subprocess.Popen(command, **given)
    return _Fork(command[2:] if command[1] == "-P" else command[1:], **given)


def _names_a_driver(word: str) -> bool:
    """Whether a word is the file of a job with a device of OpenCL, whose drivers fail in a fork."""
    if not word.endswith(".json"):
        return False
    text = Path(word).read_text(encoding="utf-8")
    return '"api":"opencl"' in text or '"device_id":"opencl' in text


CHILDREN = SimpleNamespace(Popen=_start, DEVNULL=subprocess.DEVNULL)
"""What stands for `subprocess` where an agent starts its processes."""
