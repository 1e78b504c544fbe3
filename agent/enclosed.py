"""Runs a verb of `farm model` within the boundary of a runner, in a process of its own.

It has the environment of a runner, reads the files that its call names, and writes into the folder that it
names and into the farm's program cache.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import typer

from agent.devices import closing
from agent.processes.environment import farm_cache, for_runner, own_caches
from agent.processes.exit_reason import describe_exit
from agent.processes.sandbox.boundary import TEMPORARY_FOLDER, SandboxSettings
from agent.processes.sandbox.survey import survey
from agent.processes.supervisor import die_with
from runtime.tools.calls import refuse
from runtime.tools.model_eval.verb import answers_folder
from runtime.tools.verbs import model_verbs

_FOLDERS: Final = {"bisect": "out", "eval": "answers"}
"""Verbs with the option that names the folder which they write."""
_PAGE: Final = "page"
"""The option that names a file to write."""
_INTERRUPTED: Final = 130
"""Exit code of a process that SIGINT ended, as a shell has it."""


def run(name: str, options: dict[str, Any]) -> int | None:
    """Run a verb within the boundary; return its exit code, None where the user wants none."""
    try:
        settings = SandboxSettings.from_environment()
    except ValueError as error:
        refuse(str(error))
    if not settings.on:
        return None
    if name == "eval" and options["answers"] is None:
        options["answers"] = answers_folder(options["files"])
    page = options.get(_PAGE)
    with _folder(options.get(_FOLDERS.get(name, ""))) as folders, _file(page) as pages:
        return _run(name, options, folders, replace(settings, users=None, write=(*settings.write, *pages)))


def _run(name: str, options: dict[str, Any], written: tuple[Path, ...], settings: SandboxSettings) -> int:
    """Run a verb in its process; return the exit code."""
    found = survey()
    if not found.landlock_abi or not found.seccomp:
        typer.echo(f"note: this kernel leaves open: {'; '.join(found.without)}", err=True)
    read, told = [], {}
    for option, value in options.items():
        paths = [path for path in (value if isinstance(value, list) else [value]) if isinstance(path, Path)]
        read += [path.resolve() for path in paths]
        told[option] = {"paths": list(map(str, paths)), "many": isinstance(value, list)} if paths else value
    command = [sys.executable, "-P", "-m", "agent.enclosed", name, json.dumps(told)]
    environment = for_runner()
    cache = farm_cache(environment).resolve()
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="farm-model-", ignore_cleanup_errors=True) as folder:
        temporary = Path(folder, TEMPORARY_FOLDER)
        temporary.mkdir()
        # Programs that a stranger's model made drivers keep are never read outside the boundary.
        environment |= {**own_caches(cache / "tools"), "FARM_CACHE_DIR": str(cache), "TMPDIR": str(temporary)}
        own = (Path(folder), cache, *written)
        close = closing(command, environment, (*read, *settings.read), own, settings)
        return _ended(command, environment, close)


def _ended(command: list[str], environment: dict[str, str], close: Callable[[], None]) -> int:
    """Run the command within what `close` closes, and end it with this process; return its exit code."""
    parent = os.getpid()

    def enter() -> None:
        die_with(parent)
        close()

    try:
        process = subprocess.Popen(  # noqa: S603  # our own module
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            # Without a terminal of its own it can put no keys into the user's.
            start_new_session=True,
            preexec_fn=enter,  # noqa: PLW1509  # this process has one thread
        )
    except subprocess.SubprocessError:
        refuse("the boundary of the model's process cannot be closed; FARM_RUNNER_SANDBOX=off does without")
    try:
        code = process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if code < 0:
        typer.echo(f"error: the process that ran the model ended with {describe_exit(code)}", err=True)
    return code if code >= 0 else 1


@contextlib.contextmanager
def _file(path: Path | None) -> Iterator[tuple[Path, ...]]:
    """Make the file that a verb is told to write; one that stays empty goes again."""
    if path is None:
        yield ()
        return
    path.touch()
    try:
        yield (path.resolve(),)
    finally:
        if path.stat().st_size == 0:
            path.unlink()


@contextlib.contextmanager
def _folder(folder: Path | None) -> Iterator[tuple[Path, ...]]:
    """Make the folder that a verb is told to write; one into which nothing was written goes again."""
    if folder is None:
        yield ()
        return
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield (folder.resolve(),)
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def main(name: str, told: str) -> int:
    """Call a verb within the boundary; return its exit code."""
    options = json.loads(told)
    for option, value in options.items():
        if isinstance(value, dict):
            paths = [Path(path) for path in value["paths"]]
            options[option] = paths if value["many"] else paths[0]
    verb = next(one.callback for one in model_verbs().registered_commands if one.name == name)
    assert verb is not None
    try:
        return int(verb(**options) or 0)
    except typer.Exit as end:
        return end.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # Python would flush stdout once more at its end, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
