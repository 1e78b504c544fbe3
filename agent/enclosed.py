"""Runs a verb of `farm model` or `farm model bench` within the boundary of a runner, in a process of its own.

It has the environment of a runner, reads the files that its call names, and writes into the folder and the
files that it names and into the farm's program cache. `python -m agent.enclosed --explain MODEL KIND OPTIONS`
plans for `farm submit --explain`, which writes nothing.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import typer

from agent.devices import RUNNER_COMMAND, ProbeError, ask, closing
from agent.processes.environment import farm_cache, for_runner, own_caches
from agent.processes.exit_reason import describe_exit
from agent.processes.sandbox.boundary import TEMPORARY_FOLDER, SandboxSettings
from agent.processes.sandbox.survey import survey
from agent.processes.supervisor import die_with
from agent.wire.profile import Explained
from runtime.errors import FarmRuntimeError
from runtime.tools.calls import refuse
from runtime.tools.model_eval.verb import answers_folder
from runtime.tools.verbs import model_verbs

_FOLDERS: Final = {"bisect": "out", "eval": "answers"}
"""Verbs with the option that names the folder which they write."""
_PAGE: Final = "page"
"""The option that names a file to write."""
_BENCH: Final = "bench"
WRITTEN_BY_BENCH: Final = (
    "result_file_path", "output_filepath", "output_proto_filepath", "op_profiling_output_file",
    "profiling_output_csv_file", "model_runtime_info_output_file",
)  # fmt: skip
"""Flags of `farm model bench` that name a file to write."""
_EXPLAIN: Final = "--explain"
_EXPLAIN_TIMEOUT_S: Final = 120.0
"""Seconds that a plan may take. Chosen: that of the largest published model takes ten, most of them to read
it; a driver that hangs must not hold up the command."""
_INTERRUPTED: Final = 130
"""Exit code of a process that SIGINT ended, as a shell has it."""


def run(name: str, options: dict[str, Any]) -> int | None:
    """Run a verb within the boundary; return its exit code, None where the user wants none."""
    settings = _settings()
    if settings is None:
        return None
    if name == "eval" and options["answers"] is None:
        options["answers"] = answers_folder(options["files"])
    read, told = [], {}
    for option, value in options.items():
        paths = [path for path in (value if isinstance(value, list) else [value]) if isinstance(path, Path)]
        read += paths
        told[option] = {"paths": list(map(str, paths)), "many": isinstance(value, list)} if paths else value
    page = options.get(_PAGE)
    with _folder(options.get(_FOLDERS.get(name, ""))) as folders, _files([page] if page else []) as pages:
        return _run(name, told, read, folders, replace(settings, write=(*settings.write, *pages)))


def run_bench(words: list[str]) -> int | None:
    """Run `farm model bench` within the boundary; return its exit code, None where the user wants none, or
    where the words are wrong: the tool says so before it runs a model.
    """
    # The other verbs start without numpy.
    from runtime.evaluation.flags import benchmark_flags, parse  # noqa: PLC0415
    from runtime.evaluation.inputs import InputSettings  # noqa: PLC0415

    settings = _settings()
    try:
        flags = parse(words, benchmark_flags())
        read = list(InputSettings.of(flags).files.values())
    except FarmRuntimeError:
        return None
    if settings is None:
        return None
    graph = flags.text("graph")
    # `fd:NUMBER:OFFSET:SIZE`, LiteRT's form of a part of an open file: the process inherits that.
    opened = re.match(r"fd:(\d{1,9}):", graph)
    inherited = () if opened is None else (int(opened[1]),)
    if opened is None:
        read.append(Path(graph))
    written = [Path(flags.text(name)) for name in WRITTEN_BY_BENCH if flags.text(name)]
    with _files(written) as files:
        chosen = replace(settings, write=(*settings.write, *files))
        return _run(_BENCH, {"words": words}, read, (), chosen, inherited)


def explain(model: str, kind: str, options: str) -> int:
    """Write as JSON what a delegate would run of a model, planned within the boundary."""
    path = Path(model).resolve()
    command = [*RUNNER_COMMAND, "--explain", str(path), kind, options]
    try:
        found = ask(command, _EXPLAIN_TIMEOUT_S, Explained, read=(path,), what="the plan")
    except ProbeError as error:
        typer.echo(str(error), err=True)
        return 1
    sys.stdout.write(found.model_dump_json() + "\n")
    return 0


def _settings() -> SandboxSettings | None:
    """Return the settings of the boundary, with this user's own id; None where the user wants none."""
    try:
        found = SandboxSettings.from_environment()
    except ValueError as error:
        refuse(str(error))
    return replace(found, users=None) if found.on else None


def _run(
    name: str,
    told: object,
    read: list[Path],
    written: tuple[Path, ...],
    settings: SandboxSettings,
    inherited: tuple[int, ...] = (),
) -> int:
    """Run a verb in its process, which has the descriptors `inherited`; return the exit code."""
    found = survey()
    if not found.landlock_abi or not found.seccomp:
        typer.echo(f"note: this kernel leaves open: {'; '.join(found.without)}", err=True)
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
        resolved = [path.resolve() for path in read]
        close = closing(command, environment, (*resolved, *settings.read), own, settings)
        return _ended(command, environment, close, inherited)


def _ended(
    command: list[str], environment: dict[str, str], close: Callable[[], None], inherited: tuple[int, ...]
) -> int:
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
            pass_fds=inherited,
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
        # Ctrl-C ends the wait above; the process, killed by now, is still to be reaped.
        process.wait()
    if code < 0:
        typer.echo(f"error: the process that ran the model ended with {describe_exit(code)}", err=True)
    return code if code >= 0 else 1


@contextlib.contextmanager
def _files(paths: list[Path]) -> Iterator[tuple[Path, ...]]:
    """Make the files that a verb is told to write; one that stays empty goes again."""
    try:
        for path in paths:
            # A boundary opens only what exists when it is closed.
            path.touch()
    except OSError as error:
        refuse(f"{error.filename}: {error.strerror}")
    try:
        yield tuple(path.resolve() for path in paths)
    finally:
        for path in paths:
            if path.exists() and path.stat().st_size == 0:
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
            # Refused for a folder that has something in it.
            folder.rmdir()


def main(name: str, told: str) -> int:
    """Call a verb within the boundary; return its exit code."""
    options = json.loads(told)
    if name == _BENCH:
        from runtime.evaluation import benchmark_model  # noqa: PLC0415  # as in `run_bench`

        return benchmark_model.main(options["words"])
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
    sys.exit(explain(*sys.argv[2:]) if sys.argv[1] == _EXPLAIN else main(*sys.argv[1:]))
