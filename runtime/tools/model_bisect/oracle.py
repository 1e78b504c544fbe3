"""LiteRT as the standard of a bisection, in a process of its own: it may abort.

`python -m runtime.tools.model_bisect.oracle FOLDER` reads `model.tflite` and `inputs.npz` there, and writes
the outputs of each run as `KIND.npz`.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from runtime.delegates.base import Array
from runtime.errors import FarmRuntimeError
from runtime.measure.in_flight import Blocking
from runtime.measure.loading import Opener
from runtime.measure.perturbed import moved_inputs

RUNS: Final = {"reference": "reference", "builtin": "builtin", "moved": "reference"}
"""The runs, with LiteRT's kernels of each; the inputs of `moved` are. The first is the reference."""

_LIMIT_S: Final = 1800
"""Seconds that LiteRT may take. Chosen: its reference kernels need minutes for the largest networks."""

_MODEL, _INPUTS = "model.tflite", "inputs.npz"


class OracleError(FarmRuntimeError):
    """LiteRT did not run the model; the text has its last words."""


def litert_runs(data: bytes, feeds: Sequence[Array]) -> dict[str, tuple[Array, ...]]:
    """Run a model in LiteRT; return the outputs of each of `RUNS`. Raises `OracleError`."""
    with tempfile.TemporaryDirectory(prefix="bisect-") as name:
        folder = Path(name)
        (folder / _MODEL).write_bytes(data)
        write_arrays(folder / _INPUTS, feeds)
        environment = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
        try:
            ran = subprocess.run(  # noqa: S603 - this interpreter, and a module of this package
                [sys.executable, "-P", "-m", __name__, str(folder)],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise OracleError(f"LiteRT did not finish within {_LIMIT_S} s") from error
        if ran.returncode:
            # Of a traceback the last line has the error's text.
            words = ran.stderr.decode(errors="replace").strip().splitlines()[-1:] or [
                f"exit {ran.returncode}"
            ]
            raise OracleError(f"LiteRT cannot run it: {words[0]}")
        return {run: read_arrays(folder / f"{run}.npz") for run in RUNS}


def run(opener: Opener, path: Path, feeds: Sequence[Array]) -> tuple[tuple[Array, ...], dict[str, str]]:
    """Open a model, invoke it once; return the outputs and the delegate's settings."""
    opened = opener.open(str(path))
    model: Any = opened.model
    details = model.get_input_details()
    resized = [(d, x) for d, x in zip(details, feeds, strict=True) if tuple(d["shape"]) != x.shape]
    for detail, value in resized:
        model.resize_tensor_input(detail["index"], list(value.shape))
    if resized:
        model.allocate_tensors()
    slot = Blocking(model)
    slot.start(feeds)
    return slot.finish(), dict(opened.describe())


def write_arrays(path: Path, arrays: Sequence[Array]) -> None:
    """Write arrays in their order."""
    named: dict[str, Array] = {str(i): value for i, value in enumerate(arrays)}
    # To an open file: of a path numpy would change the name, where that does not end with ".npz".
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **named)


def read_arrays(path: Path) -> tuple[Array, ...]:
    """Read what `write_arrays` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        # By number: sorted as text, "10" would come before "2".
        return tuple(stored[str(i)] for i in range(len(stored.files)))


def _main(folder: Path) -> None:
    feeds = read_arrays(folder / _INPUTS)
    for name, resolver in RUNS.items():
        opener = Opener.prepare("litert", {"threads": 1, "resolver": resolver})
        fed = moved_inputs(feeds) if name == "moved" else feeds
        write_arrays(folder / f"{name}.npz", run(opener, folder / _MODEL, fed)[0])


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
