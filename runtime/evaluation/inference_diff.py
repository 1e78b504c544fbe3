"""LiteRT's spelling of `farm model diff`.

`python -m delegate_farm.litert_tools inference_diff --model_file=…` takes LiteRT's flags and prints LiteRT's
lines, and those alone.
"""

from collections.abc import Sequence
from pathlib import Path

from runtime.evaluation.flags import FlagError, Flags, run_tool, write
from runtime.evaluation.run_eval import flags_of, required, setting_of
from runtime.model.signatures import readable_model
from runtime.tools.calls import clear_errors
from runtime.tools.model_diff.comparing import Request, difference
from runtime.tools.model_diff.printed import evaluation_metrics, litert_lines


def main(words: Sequence[str] | None = None) -> int:
    """Run the tool on the words of a command line, by default this process's; return its exit code: 0, or 2
    for a wrong call or a model that cannot be run.
    """
    return run_tool("inference_diff", "model_file", flags_of("inference_diff"), words, _compare)


def _compare(flags: Flags) -> None:
    file = required(flags, "model_file")
    for name in ("num_runs", "num_interpreter_threads"):
        if flags.integer(name) < 1:
            raise FlagError(f"--{name}={flags.integer(name)}: expected at least 1")
    with clear_errors(file), readable_model(file) as (path, model):
        request = Request(setting_of(flags), "litert", flags.integer("num_runs"), 0, {})
        found = difference(model, path, request)
        for line in litert_lines(found):
            write(line)
        if flags.text("output_file_path"):
            Path(flags.text("output_file_path")).write_bytes(evaluation_metrics(found))
