"""`benchmark_model_performance_options`: `benchmark_model` with each setting in a process, and a summary.

LiteRT's tool runs all settings in one process, so that its memory figures are of all of them, and ends with
the first that fails. Here a setting that fails is told, and the others go on.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import typer

from runtime.evaluation.flags import Flag, FlagError, Flags, benchmark_flags, flag_table, run_tool, write
from runtime.tools.model_diff.worker import listed_environment

_NAME: Final = "benchmark_model_performance_options"
_BANNER: Final = "Summary of All Runs w/ Different Performance Options"
_WIDTH: Final = 26
"""Columns in which LiteRT right-aligns the name of a run."""

_THREADS: Final = (1, 2, 4)
"""Numbers of threads that LiteRT's option `cpu` tries."""

_ABSENT: Final = {
    "nnapi": "Android's NNAPI is not driven here",
    "coreml": "Core ML is Apple's",
    "dsp": "Hexagon DSPs are not driven here",
}
_RESET: Final = ("num_threads", "delegate", "delegate_options", "use_gpu", "use_xnnpack")
"""Flags that each setting sets anew, whatever the command line says, as in LiteRT."""


@dataclass(frozen=True, slots=True)
class Run:
    """One setting: the name in the summary, and its flags of `benchmark_model`."""

    name: str
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that has ended: its line of statistics and its mean in milliseconds, both None if it failed."""

    name: str
    line: str | None = None
    avg_ms: float | None = None


@cache
def performance_flags() -> Mapping[str, Flag]:
    """Return the flags of this tool, then those of `benchmark_model`."""
    own = flag_table(Path(__file__).with_name("performance_options_flags.txt"))
    return {**own, **benchmark_flags()}


def main(words: Sequence[str] | None = None) -> int:
    """Run the tool on the words of a command line, by default this process's; return its exit code.

    It is 0, 1 where a run failed, or 2 for a wrong call.
    """
    return run_tool(_NAME, "graph", performance_flags(), words, _run_all)


def _run_all(flags: Flags) -> int:
    ended = list(_all(runs_of(flags), flags))
    for line in summary(ended):
        write(line)
    return 1 if any(run.line is None for run in ended) else 0


def runs_of(flags: Flags) -> list[Run]:
    """Return the settings that the flag `perf_options_list` names, in the order in which they run.

    Raises:
        FlagError: an unknown option, one that this machine cannot have, `none` beside others, no model, or a
            single file for the results of all runs.
    """
    if not flags.text("graph"):
        raise FlagError("--graph=FILE is missing")
    if flags.text("result_file_path"):
        raise FlagError("--result_file_path has room for one run; call benchmark_model with one setting")
    names = [name.strip() for name in flags.text("perf_options_list").split(",")]
    for name in names:
        if name in _ABSENT:
            raise FlagError(f"--perf_options_list: {name} is not offered: {_ABSENT[name]}")
        if name not in ("all", "cpu", "gpu", "none"):
            raise FlagError(f"--perf_options_list: no option {name!r}; choose of all, cpu, gpu and none")
    if "none" in names:
        if len(names) > 1:
            raise FlagError("--perf_options_list: none runs the given flags alone; leave the others out")
        return [Run("no performance options", ())]
    runs = [run for name, own in _settings() if {"all", name} & set(names) for run in own]
    if flags.is_set("random_shuffle_benchmark_runs"):
        random.shuffle(runs)
    return runs


def _settings() -> Iterator[tuple[str, list[Run]]]:
    cpu = [
        Run(f"cpu w/ {threads} threads{title}", (f"--num_threads={threads}", flag))
        for threads in _THREADS
        for title, flag in (("", "--delegate=cpu"), (" (xnnpack)", "--use_xnnpack=true"))
    ]
    yield "cpu", cpu
    yield "gpu", [Run("gpu-default", ("--use_gpu=true",))]


def _all(runs: Sequence[Run], flags: Flags) -> Iterator[Ended]:
    pause_s = flags.number("option_benchmark_run_delay")
    for number, run in enumerate(runs):
        if number and pause_s > 0:
            time.sleep(pause_s)
        yield _ended(run, flags)


def _ended(run: Run, flags: Flags) -> Ended:
    """Measure one setting in a process of its own, whose lines are printed as they come."""
    with tempfile.TemporaryDirectory(prefix="performance-options-") as folder:
        result = Path(folder) / "result.json"
        # The setting's own flags stand behind the user's: the last of equal flags wins.
        own = (*_given(run, flags), *run.flags, f"--result_file_path={result}")
        # -P: modules are not looked for in the current folder.
        command = [sys.executable, "-P", "-m", "runtime.evaluation", "benchmark_model", *own]
        last = None
        with subprocess.Popen(  # noqa: S603 - this interpreter, and a module of this package
            command, env=listed_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                typer.echo(line, nl=False)
                # The warm-up's statistics come first; those of the regular runs are for the summary.
                last = line.rstrip("\n") if line.startswith("count=") else last
        if process.returncode or last is None or not result.exists():
            return Ended(run.name)
        return Ended(run.name, last, json.loads(result.read_text())["latency_metrics"]["avg_ms"])


def _given(run: Run, flags: Flags) -> Iterator[str]:
    """Yield the flags of the command line that a run keeps."""
    for name in flags.explicit:
        if name in benchmark_flags() and not (run.flags and name in _RESET):
            value = flags.values[name]
            yield f"--{name}={str(value).lower() if isinstance(value, bool) else value}"


def summary(ended: Sequence[Ended]) -> Iterator[str]:
    """Yield the lines of the summary: the fastest first, by the mean, and those that failed last."""
    yield f"==============={_BANNER}==============="
    order = sorted(ended, key=lambda run: float("inf") if run.avg_ms is None else run.avg_ms)
    for run in order:
        yield f"{run.name:>{_WIDTH}}: {' failed!' if run.line is None else run.line}"
