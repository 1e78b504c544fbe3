"""A model in a process of its own: the runtimes of others, LiteRT among them, may abort on odd models.

`python -m runtime.tools.model_diff.worker FOLDER` answers each line of JSON that it reads with one line. The
first opens a model, every other runs it: inputs and outputs are files in the folder.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from runtime.delegates.base import Array
from runtime.delegates.registry import delegate_descriptor, delegate_factory
from runtime.errors import FarmRuntimeError
from runtime.judge.agreement import OutputFacts
from runtime.measure.inputs import InputRule
from runtime.tools.model_bisect.oracle import read_arrays, write_arrays
from runtime.tools.model_diff.running import Detail, LocalModel, Ran, Running, Setting

_LIMIT_S: Final = 1800
"""Seconds that one request may take. Chosen: LiteRT's reference kernels need minutes for the largest
networks."""

_ENVIRONMENT: Final = (
    "PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "OCL_ICD_VENDORS", "VK_ICD_FILENAMES",
    "FARM_CACHE_DIR", "XDG_CACHE_HOME", "POCL_CACHE_DIR", "CUDA_CACHE_PATH", "NEO_CACHE_DIR",
    "AMD_COMGR_CACHE_DIR", "MESA_SHADER_CACHE_DIR",
)  # fmt: skip
"""Variables that a worker gets: programs, folders, where drivers of devices are and keep programs."""

_INPUTS, _OUTPUTS, _WORDS = "inputs.npz", "outputs.npz", "stderr"


def listed_environment() -> dict[str, str]:
    """Return the environment of a process that runs a model for a tool: the listed variables that are set."""
    return {key: os.environ[key] for key in _ENVIRONMENT if key in os.environ}


class WorkerError(FarmRuntimeError):
    """A model did not run in its process; the text has the last words."""


@contextmanager
def opened(setting: Setting, path: Path, rules: Mapping[str, InputRule]) -> Iterator[Running]:
    """Open a model: in this process, or in one of its own where a delegate runs whole models.

    Raises `WorkerError`, and what `Opener` raises.
    """
    is_foreign = hasattr(delegate_factory(delegate_descriptor(setting.kind)), "load")
    model: Running = (_WorkerModel if is_foreign else LocalModel)(setting, path, rules)
    try:
        yield model
    finally:
        model.close()


class _WorkerModel:
    """A model in another process."""

    def __init__(self, setting: Setting, path: Path, rules: Mapping[str, InputRule]) -> None:
        self._kind = setting.kind
        self._home = tempfile.TemporaryDirectory(prefix="diff-")
        self._folder = Path(self._home.name)
        with (self._folder / _WORDS).open("wb") as words:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and a module of this package
                [sys.executable, "-P", "-m", __name__, str(self._folder)],
                env=listed_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                # No buffer on this side: a line that waits in one would be unseen by "select".
                bufsize=0,
            )
        shapes = {name: rule.shape for name, rule in rules.items() if rule.shape is not None}
        request = {"kind": setting.kind, "options": dict(setting.options), "path": str(path.resolve())}
        try:
            answer = self._answer({**request, "shapes": shapes})
        except BaseException:
            self.close()
            raise
        self.inputs: Sequence[Detail] = answer["inputs"]
        self.facts: Sequence[OutputFacts] = [OutputFacts(**fact) for fact in answer["facts"]]
        self.settings: Mapping[str, str] = answer["settings"]

    def run(self, feeds: Sequence[Array], invokes: int) -> Ran:
        """Feed the model once, and invoke it so many times. Raises `WorkerError`."""
        write_arrays(self._folder / _INPUTS, feeds)
        answer = self._answer({"invokes": invokes})
        self.settings = answer["settings"]
        return Ran(read_arrays(self._folder / _OUTPUTS), tuple(answer["times_us"]))

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._home.cleanup()

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
        except BrokenPipeError as error:
            raise self._end() from error
        if not select.select([stdout], [], [], _LIMIT_S)[0]:
            raise WorkerError(f"{self._kind} did not finish within {_LIMIT_S} s")
        line = stdout.readline()
        if not line:
            raise self._end()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def _end(self) -> WorkerError:
        # The pipe closes before the exit code is there.
        code = self._process.wait()
        words = (self._folder / _WORDS).read_bytes().decode(errors="replace").strip().splitlines()[-1:]
        end = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return WorkerError(": ".join([f"{self._kind} {end} on this model", *words]))


def _main(folder: Path) -> None:
    answers = os.fdopen(os.dup(1), "w")
    # A library's own prints are no answers.
    os.dup2(2, 1)
    model: LocalModel | None = None
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any]
        try:
            if model is None:
                model = _model(request)
                answer = _facts(model)
            else:
                ran = model.run(read_arrays(folder / _INPUTS), request["invokes"])
                write_arrays(folder / _OUTPUTS, ran.outputs)
                answer = {"times_us": ran.times_us, "settings": model.settings}
        except (FarmRuntimeError, RuntimeError, ValueError) as error:
            answer = {"error": " ".join(str(error).split())}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _model(request: Mapping[str, Any]) -> LocalModel:
    rules = {name: InputRule(shape=tuple(shape)) for name, shape in request["shapes"].items()}
    return LocalModel(Setting(request["kind"], request["options"]), Path(request["path"]), rules)


def _facts(model: LocalModel) -> dict[str, Any]:
    inputs = [
        {
            "name": str(detail["name"]),
            "shape": [int(n) for n in detail["shape"]],
            "dtype": np.dtype(detail["dtype"]).str,
            "quantization": [float(detail["quantization"][0]), int(detail["quantization"][1])],
        }
        for detail in model.inputs
    ]
    return {"inputs": inputs, "facts": [asdict(f) for f in model.facts], "settings": dict(model.settings)}


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
