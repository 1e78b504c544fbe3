"""The process that has imported our programs and forks one of them for each request: see `forks`.

`python -m tests.services.fork_server FD`: a request is one packet on that socket, a JSON object and at least
four descriptors: standard input, output, error, where the program's id and its end are told, a line each, and
what else the program inherits. The forks themselves ask in the same way for the agents that they start.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter
from sqlalchemy.orm import configure_mappers

import orchestrator.cli
from agent.wire.bounded import Wire
from orchestrator.config.home import FarmHome
from orchestrator.dispatch import embedded
from orchestrator.farm import opening
from orchestrator.manifest.delegates import default_kinds
from orchestrator.manifest.keys import Keys
from tests.services import forks, known
from tests.services.forked_children import import_runners

_MOST_DESCRIPTORS = 5
_PR_SET_PDEATHSIG = 1
"""Of `prctl`, in `linux/prctl.h`."""


def import_programs() -> None:
    """Import every module of the farm and of the agent, and what runners need."""
    for module in pkgutil.walk_packages(orchestrator.__path__, "orchestrator."):
        if "__main__" not in module.name and not module.name.startswith("orchestrator.db.migrations"):
            importlib.import_module(module.name)
    import_runners()
    prepare()


def prepare() -> None:
    """Do once what each program does when it first needs it, and what would be most of a short one's time:
    read the verbs' options, make the validators of messages and the mappers of tables, import Alembic.
    """
    groups = [orchestrator.cli.parser()]
    for group in groups:
        loaded = (getattr(verb, "load", lambda verb=verb: verb)() for verb in group.commands.values())
        groups += (verb for verb in loaded if hasattr(verb, "commands"))
    models: list[type[BaseModel]] = [Wire, Keys]
    for model in models:
        models += model.__subclasses__()
        model.model_rebuild()
    for adapter in gc.get_objects():
        if type(adapter) is TypeAdapter:
            adapter.rebuild()
    configure_mappers()
    importlib.import_module("alembic.command")
    default_kinds()


def serve(requests: socket.socket) -> None:
    """Fork for each request until nobody can ask any more; in a fork, return when its program has ended."""
    programs = {point.name: point for point in entry_points(group="console_scripts")}
    gc.freeze()  # A collection in a fork would otherwise write to every page, and so copy it.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The kernel then takes those away that watch a program.
    server = os.getpid()
    asking, asked = forks.channel()
    forks.ask_at(asking)
    while True:
        ready = select.select([requests, asked], [], [])[0][0]
        data, descriptors, _, _ = socket.recv_fds(ready, forks.MOST_BYTES, _MOST_DESCRIPTORS)
        if not data:
            return
        if not os.fork():
            break
        for descriptor in descriptors:
            os.close(descriptor)
    requests.close()
    asked.close()
    _die_with(server)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    files, told, inherited = descriptors[:3], descriptors[3], descriptors[4:]
    watcher = os.getpid()
    program = os.fork()
    if program:
        for descriptor in (*files, *inherited):
            os.close(descriptor)
        _tell(program, told)
    os.close(told)
    _die_with(watcher)
    request = json.loads(data)
    _become(request, files, inherited)
    embedded.subprocess = forks.AGENTS  # type: ignore[attr-defined]
    if folder := known.shared_folder():
        _share(folder)
    name = request["argv"][0]
    point = programs[name] if name in programs else EntryPoint(name, name, "")
    try:
        code = point.load()()
    except SystemExit as end:
        code = end.code
    if code is None or isinstance(code, int):
        _ends_with.append(code or 0)
    sys.exit(code)


_ends_with: list[int] = []
"""The exit code of this fork, once its program has returned one."""


def _leave() -> None:
    """End, when Python has done all it does at its end but clear every module.

    In a fork that takes longer than most of the programs run: it writes to every page, and so copies it.
    """
    if not _ends_with:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return  # Python says what it finds wrong with them.
    os._exit(_ends_with[0] & 0xFF)


def _become(request: dict[str, Any], files: list[int], inherited: list[int]) -> None:
    """Take over what a new process is given; a session of its own where that is asked for."""
    os.umask(request["umask"])
    if request["session"]:
        os.setsid()
    for number, descriptor in enumerate(files):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["cwd"])
    sys.argv = [*request["argv"], *map(str, inherited)]
    os.environ.clear()
    os.environ.update(request["env"])


def _share(folder: Path) -> None:
    """Have the agents of this program share what those of other tests have found out."""
    known.share(folder)
    command = opening.agent_command

    def knowing(home: FarmHome) -> list[str]:
        own = command(home)
        module = own.index("agent")
        return [*own[:module], known.__name__, str(folder), *own[module + 1 :]]

    opening.agent_command = knowing


def _tell(program: int, told: int) -> None:
    """Tell the program's id, then how it ended; does not return."""
    os.write(told, f"{program}\n".encode())
    _, status = os.waitpid(program, 0)
    os.write(told, f"{status}\n".encode())
    os._exit(0)


def _die_with(parent: int) -> None:
    """SIGKILL when the parent ends, which may have happened already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    atexit.register(_leave)  # the first to be registered is called last
    import_programs()
    serve(socket.socket(fileno=int(sys.argv[1])))
