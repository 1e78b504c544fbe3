"""LiteRT's spelling of `farm model diff`.

`python -m runtime.evaluation inference_diff --model_file=…` takes LiteRT's flags and prints LiteRT's
lines, and those alone.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer

from runtime.tools.calls import clear_errors, refuse, visible
from runtime.tools.model_diff.comparing import Request, difference
from runtime.tools.model_diff.metrics import evaluation_metrics
from runtime.tools.model_diff.printed import litert_lines
from runtime.tools.model_diff.running import Setting
from runtime.tools.model_info.source import readable_model


def _boolean(text: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[text]


@dataclass(frozen=True, slots=True)
class _Flag:
    """A flag: how its text is read, its default, its help. `option`: the delegate's option that it sets."""

    read: Callable[[str], Any]
    default: Any
    help: str
    option: str = ""


_FLAGS: Final[Mapping[str, _Flag]] = {
    "model_file": _Flag(str, "", "The .tflite file; required."),
    "output_file_path": _Flag(str, "", "File for the metrics, as a serialised EvaluationStageMetrics."),
    "num_runs": _Flag(int, 50, "Input sets."),
    "num_interpreter_threads": _Flag(int, 1, "Threads of the CPU's kernels in the test setting."),
    "delegate": _Flag(str, "", "gpu, xnnpack, or any delegate of `farm delegates`; none by default."),
    "use_gpu": _Flag(_boolean, False, "The same as --delegate=gpu."),
    "use_xnnpack": _Flag(_boolean, False, "The same as --delegate=xnnpack."),
    "gpu_precision_loss_allowed": _Flag(
        _boolean, None, "Allow fp16 on the GPU.", option="precision_loss_allowed"
    ),
    "max_delegated_partitions": _Flag(
        int, None, "Most partitions of the GPU delegate.", option="max_delegated_partitions"
    ),
    "min_nodes_per_partition": _Flag(
        int, None, "Fewest operators of each.", option="min_nodes_per_partition"
    ),
}

_ELSEWHERE: Final = {
    "nnapi": "Android alone has NNAPI",
    "hexagon": "Qualcomm's phones alone have Hexagon",
    "coreml": "Apple's devices alone have Core ML",
}
"""Delegates of LiteRT that are on no machine of this runtime, with the reason."""

_CPU: Final = ("", "xnnpack")
"""Names under which LiteRT runs the model on the CPU: it applies XNNPACK unasked."""


def main(arguments: Sequence[str]) -> int:
    """Run the tool; return its exit code: 0, or 2 for a wrong call or a model that cannot be run."""
    if "--help" in arguments:
        for name, flag in _FLAGS.items():
            typer.echo(f"--{name}={'' if flag.default is None else flag.default}\t{flag.help}")
        return 0
    try:
        values = _values(arguments)
        file = Path(values["model_file"])
        with clear_errors(file), readable_model(file) as (path, model):
            request = Request(_setting(values), "litert", values["num_runs"], 0, {})
            found = difference(model, path, request)
            for line in litert_lines(found):
                typer.echo(visible(line))
            if values["output_file_path"]:
                Path(values["output_file_path"]).write_bytes(evaluation_metrics(found))
    except typer.Exit as end:
        return end.exit_code
    return 0


def _values(arguments: Sequence[str]) -> dict[str, Any]:
    """Read `--name=value` flags. Ends a wrong call."""
    values = {name: flag.default for name, flag in _FLAGS.items()}
    for argument in arguments:
        name, equals, text = argument.removeprefix("--").partition("=")
        if not argument.startswith("--") or name not in _FLAGS:
            near = difflib.get_close_matches(name, _FLAGS, n=1)
            refuse(f"unknown flag {argument!r}" + (f"; did you mean --{near[0]}?" if near else ""))
        if not equals:
            refuse(f"--{name} needs a value, as --{name}=...")
        try:
            values[name] = _FLAGS[name].read(text)
        except (ValueError, KeyError):
            refuse(f"--{name}={text}: expected {_EXPECTED[_FLAGS[name].read]}")
    if not values["model_file"]:
        refuse("--model_file=FILE is required")
    for name in ("num_runs", "num_interpreter_threads"):
        if values[name] < 1:
            refuse(f"--{name}={values[name]}: expected at least 1")
    return values


_EXPECTED: Final[Mapping[Callable[[str], Any], str]] = {int: "a whole number", _boolean: "true or false"}


def _setting(values: Mapping[str, Any]) -> Setting:
    """Return the test setting; the flag `delegate` goes before the others, as in LiteRT."""
    name = values["delegate"] or ("gpu" if values["use_gpu"] else "xnnpack" if values["use_xnnpack"] else "")
    if name in _ELSEWHERE:
        refuse(f"--delegate={name} is not available: {_ELSEWHERE[name]}")
    threads = {"threads": values["num_interpreter_threads"]}
    if name in _CPU:
        return Setting.of("litert", threads)
    given = {
        flag.option: values[key] for key, flag in _FLAGS.items() if flag.option and values[key] is not None
    }
    return Setting.of(name, given if name == "gpu" else threads if name == "cpu" else {})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
