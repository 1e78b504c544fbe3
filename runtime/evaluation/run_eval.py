"""The common part of LiteRT's two `run_eval` tools: flags, the delegate, the pass, its times."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import typer

from runtime.common.protobuf import integer, message
from runtime.evaluation.benchmark_model import Choice
from runtime.evaluation.flags import Flag, FlagError, Flags, benchmark_flags, flag_table, run_tool, write
from runtime.measure.accuracy.data import Data
from runtime.tools.model_diff.comparing import Summary
from runtime.tools.model_diff.printed import latency
from runtime.tools.model_diff.running import Setting
from runtime.tools.model_eval.process import Passed, run_pass

Lines = Iterator[str]
Report = Callable[[Passed, Flags], tuple[Lines, bytes]]
"""Makes the lines and the metrics of a pass."""


@cache
def flags_of(tool: str) -> Mapping[str, Flag]:
    """Return the flags of a tool: its own, then those of delegates, which all tools have."""
    shared = dict(benchmark_flags())
    names = list(shared)
    # The table ends with the flags of delegates; those in front of them are of the benchmark alone.
    delegates = names[names.index("delegate") :]
    own = flag_table(Path(__file__).with_name(f"{tool}_flags.txt"))
    return {**own, **{name: shared[name] for name in delegates}}


def run_eval(
    command: str, words: Sequence[str] | None, data_of: Callable[[Flags], Data], report: Report
) -> int:
    """Run a tool on the words of a command line, by default this process's; return its exit code."""
    table = flags_of(command.removeprefix("coco_").removesuffix("_run_eval"))

    def work(flags: Flags) -> None:
        for line in _evaluated(flags, data_of(flags), report):
            write(line)

    return run_tool(command, "model_file", table, words, work)


def required(flags: Flags, name: str) -> Path:
    """Return the path that a flag names. Raises `FlagError` where there is none."""
    if not flags.text(name):
        raise FlagError(f"--{name}=PATH is missing")
    return Path(flags.text(name))


def _evaluated(flags: Flags, data: Data, report: Report) -> Lines:
    with tempfile.TemporaryDirectory(prefix="run-eval-") as folder:
        model, answers = required(flags, "model_file"), Path(folder) / "answers.jsonl"
        passed = run_pass(setting_of(flags), model, data, answers, {}, _progress())
        lines, metrics = report(passed, flags)
        yield f"Num evaluation runs: {passed.samples}"
        for title, summary in (("Preprocessing", passed.preparing), ("Inference", passed.invoking)):
            # The folder of the answers is new, so this pass has run every sample.
            assert summary is not None
            yield f"{title} latency: avg={summary.average:g}(us), std_dev={int(summary.deviation)}(us)"
        yield from lines
    if flags.text("output_file_path"):
        stage = integer(1, passed.samples) + message(2, metrics)
        Path(flags.text("output_file_path")).write_bytes(stage)


def stage_metrics(passed: Passed, accuracy: bytes) -> bytes:
    """Return the fields that the metrics of both tasks have: times, number of runs, then the accuracy."""
    both: list[Summary] = [one for one in (passed.preparing, passed.invoking) if one is not None]
    times = b"".join(message(number, latency(one)) for number, one in enumerate(both, 1))
    return times + message(3, integer(1, passed.samples)) + message(4, accuracy)


def setting_of(flags: Flags) -> Setting:
    """Return the delegate; the flag `delegate` goes before the others, and none is LiteRT with XNNPACK."""
    name, table = flags.text("delegate"), benchmark_flags()
    if f"use_{name}" in table and table[f"use_{name}"].use != "used":
        raise FlagError(f"--delegate={name} is not offered: {table[f'use_{name}'].use}")
    # `Choice.of` looks for the benchmark's flag, which these tools lack: theirs is "num_interpreter_threads".
    values = dict(flags.values) | {"num_threads": -1}
    if name:
        values |= {"delegate": {"xnnpack": "litert"}.get(name, name), "use_gpu": False, "use_xnnpack": False}
    choice = Choice.of(Flags(values, flags.explicit))
    kind = choice.kind if choice.is_explicit else "litert"
    threads = {"threads": flags.integer("num_interpreter_threads")} if kind in ("cpu", "litert") else {}
    return Setting.of(kind, threads | choice.options)


def _progress() -> Callable[[int, int], None]:
    """Return what prints LiteRT's progress."""
    last = -1

    def told(done: int, count: int) -> None:
        nonlocal last
        if (percent := 100 * done // count) != last:
            last = percent
            typer.echo(f"Evaluated: {percent}%", err=True)

    return told
