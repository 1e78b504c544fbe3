"""The operator profile of `benchmark_model`: LiteRT's tables, CSV or message, from a pass of its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from runtime.common.profile import written
from runtime.evaluation.flags import FlagError, Flags, write
from runtime.evaluation.report import profile_message
from runtime.measure.inputs import InputRule
from runtime.tools.model_profile import profile_file

_MODES: Final = ("stdout", "csv", "proto")

_ROUNDS: Final = 10
"""Runs of the pass, each in which every operator is timed by itself. Chosen: as `farm model profile`."""


def write_profile(
    flags: Flags, graph: str, kind: str, options: Mapping[str, Any], rules: Mapping[str, InputRule]
) -> None:
    """Profile the model once more and write what the flags ask for, by default to the tool's output.

    Raises `FlagError` for an unknown mode, and as `profile_file` where a delegate tells no operators.
    """
    mode, target = profile_mode(flags)
    profile = profile_file(Path(graph), kind, options, rules, _ROUNDS).profile
    if mode == "proto":
        Path(target).write_bytes(profile_message(Path(flags.text("graph")).name, profile))
        return
    lines = written(profile, "", "csv" if mode == "csv" else "tables")
    if target:
        Path(target).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    else:
        for line in lines:
            write(line)


def profile_mode(flags: Flags) -> tuple[str, str]:
    """Return the form of the profile, and the file that it is for; empty: the output. Raises `FlagError`."""
    if csv := flags.text("profiling_output_csv_file"):
        return "csv", csv
    mode, target = flags.text("op_profiling_output_mode"), flags.text("op_profiling_output_file")
    if mode not in _MODES:
        raise FlagError(f"--op_profiling_output_mode={mode}: expected one of {', '.join(_MODES)}")
    if mode == "proto" and not target:
        raise FlagError("--op_profiling_output_mode=proto needs --op_profiling_output_file=PATH")
    return mode, target
