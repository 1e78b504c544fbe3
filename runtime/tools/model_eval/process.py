"""One pass over a data set in a process of its own: a runtime may abort on an odd model.

`python -m runtime.tools.model_eval.process` reads a request of JSON, and writes a line whenever it has got
further, at last the outcome.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import IO, Any, Final

from runtime.errors import FarmRuntimeError
from runtime.measure.accuracy.data import Data
from runtime.measure.accuracy.evaluating import Evaluated, Told, evaluate
from runtime.measure.inputs import InputRule
from runtime.measure.loading import Opener
from runtime.tools.model_diff.comparing import Summary
from runtime.tools.model_diff.running import Setting
from runtime.tools.model_diff.worker import listed_environment

_STEP_S: Final = 0.5
"""Seconds between two lines of progress. Chosen: finer, and they cost more than a small model's run."""


class PassError(FarmRuntimeError):
    """A pass did not end; the text has the reason."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A pass that reached the end of its data set. Times in microseconds are of this pass, memory is growth
    of its process's peak in bytes; both are None where every answer was there already.
    """

    head: Mapping[str, Any]
    samples: int
    answers: Path
    preparing: Summary | None
    invoking: Summary | None
    median_us: float | None
    memory_bytes: int | None


def run_pass(
    setting: Setting,
    model: Path,
    data: Data,
    answers: Path,
    identity: Mapping[str, Any],
    told: Told,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Passed:
    """Answer what has no answer yet in a new process; `shapes`: of inputs. Raises `PassError`."""
    paths = {"path": data.path, "truth": data.truth, "labels": data.labels}
    named = {name: None if path is None else str(path.resolve()) for name, path in paths.items()}
    whole = {field.name: getattr(data, field.name) for field in fields(data)} | named
    request = {
        "kind": setting.kind,
        "options": dict(setting.options),
        "model": str(model.resolve()),
        "data": whole | {"left_out": sorted(data.left_out)},
        "answers": str(answers.resolve()),
        "identity": dict(identity),
        "shapes": dict(shapes or {}),
    }
    with tempfile.TemporaryFile() as words:
        with subprocess.Popen(  # noqa: S603 - this interpreter, and a module of this package
            [sys.executable, "-P", "-m", __name__],
            env=listed_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
        ) as process:
            try:
                outcome = _listen(process, request, told)
            finally:
                # Also where "told" raises, as at Ctrl-C; one that has ended by itself is not touched.
                process.kill()
        if outcome is None:
            raise PassError(_end(setting, process.returncode, words))
    if "error" in outcome:
        raise PassError(outcome["error"])
    return Passed(
        answers=answers,
        preparing=_summary(outcome["preparing"]),
        invoking=_summary(outcome["invoking"]),
        **{name: outcome[name] for name in ("head", "samples", "median_us", "memory_bytes")},
    )


def _summary(figures: Mapping[str, Any] | None) -> Summary | None:
    return None if figures is None else Summary(**figures)


def _listen(
    process: subprocess.Popen[bytes], request: Mapping[str, Any], told: Told
) -> dict[str, Any] | None:
    """Return the outcome; None where the process ended without one."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(request).encode())
        # The end of the file is the end of the request.
        process.stdin.close()
    except BrokenPipeError:
        # It ended before it had read all; its exit code and its last words tell why.
        return None
    for line in process.stdout:
        answer: dict[str, Any] = json.loads(line)
        if "done" not in answer:
            process.wait()
            return answer
        told(answer["done"], answer["count"])
    process.wait()
    return None


def _end(setting: Setting, code: int, words: IO[bytes]) -> str:
    words.seek(0)
    last = words.read().decode(errors="replace").strip().splitlines()[-1:]
    end = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    return ": ".join([f"{setting.kind} {end} on this model", *last])


def _main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    # A library's own prints are no answers.
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    last = time.monotonic()

    def write(value: Mapping[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    def told(done: int, count: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _STEP_S:
            last = time.monotonic()
            write({"done": done, "count": count})

    try:
        write(_outcome(_evaluated(request, told)))
    except OSError as error:
        write({"error": f"{error.filename}: {error.strerror}"})
    except (FarmRuntimeError, RuntimeError, ValueError) as error:
        write({"error": " ".join(str(error).split())})


def _evaluated(request: Mapping[str, Any], told: Told) -> Evaluated:
    given = request["data"]
    paths = {name: given[name] and Path(given[name]) for name in ("path", "truth", "labels")}
    # JSON has made lists of them.
    pairs = {name: given[name] and tuple(given[name]) for name in ("mean", "std")}
    data = replace(Data(**(given | paths | pairs)), left_out=frozenset(given["left_out"]))
    opener = Opener.prepare(request["kind"], request["options"])
    answers = Path(request["answers"])
    rules = {name: InputRule(shape=tuple(shape)) for name, shape in request["shapes"].items()}
    return evaluate(opener, Path(request["model"]), data, answers, request["identity"], told, rules)


def _outcome(found: Evaluated) -> dict[str, Any]:
    import numpy as np  # noqa: PLC0415  # of the process alone

    times = {"preparing": found.preparing_us, "invoking": found.invoking_us}
    made = {name: _fields(Summary.of(values)) if len(values) else None for name, values in times.items()}
    new = len(found.invoking_us)
    return {
        **made,
        "head": dict(found.head),
        "samples": found.samples,
        "median_us": float(np.median(np.asarray(found.invoking_us))) if new else None,
        "memory_bytes": found.memory_bytes if new else None,
    }


def _fields(summary: Summary) -> dict[str, float]:
    return {field.name: getattr(summary, field.name) for field in fields(summary)}


if __name__ == "__main__":
    _main()
