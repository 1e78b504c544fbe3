"""One contender of a comparison, in a process of its own, whose parent asks for slices of calls.

    python -m benchmarks.contender NAME MODEL THREADS

It answers with JSON on a line: first how much of the model it took, or why it is `absent`; then, for each
line with a number on stdin, the median seconds of so many calls. A call is inputs in, invoke, outputs out.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import runtime
from benchmarks.interleaved import slice_of


def main() -> int:
    """Load, say so, then run slices until stdin ends."""
    name, model, threads = sys.argv[1:]
    try:
        loaded = load(name, model, int(threads))
        call = caller(loaded)
        call()
    except Exception as error:  # noqa: BLE001  # a contender that cannot run is a row of the table
        _say({"absent": f"{type(error).__name__}: {error}"[:500]})
        return 0
    report = getattr(loaded, "delegation", None)
    taken = None if report is None else f"{report.delegated_ops}/{report.total_ops}"
    _say({"delegation": taken})
    gc.disable()
    for line in sys.stdin:
        _say({"seconds": slice_of(call, int(line))})
    return 0


def load(name: str, path: str, threads: int) -> Any:
    """The model on a contender: `litert-RESOLVER`, `cpu` or `gpu`. Raises where it is not taken whole."""
    if name.startswith("litert-"):
        options = {"threads": threads, "resolver": name.removeprefix("litert-")}
        return runtime.load_delegate("litert", options).load(path)
    delegates = [runtime.load_delegate("gpu", {})] if name == "gpu" else None
    interpreter = runtime.Interpreter(model_path=path, experimental_delegates=delegates, num_threads=threads)
    interpreter.allocate_tensors()
    if delegates and interpreter.delegation.status != "full":
        raise RuntimeError(
            f"delegation is {interpreter.delegation.status}: {interpreter.delegation.fallbacks[:1]}"
        )
    return interpreter


def caller(loaded: Any) -> Callable[[], None]:
    """A call of the loaded model on random inputs; integers without a scale are indices or masks, 0 or 1."""
    rng = np.random.default_rng(0)
    inputs = []
    for detail in loaded.get_input_details():
        dtype = np.dtype(detail["dtype"])
        if np.issubdtype(dtype, np.integer):
            low, high = (-100, 100) if detail["quantization"][0] else (0, 2)
            values = rng.integers(low, high, detail["shape"])
        else:
            values = rng.uniform(-1, 1, detail["shape"])
        inputs.append((detail["index"], values.astype(dtype)))
    outputs = [detail["index"] for detail in loaded.get_output_details()]

    def call() -> None:
        for index, value in inputs:
            loaded.set_tensor(index, value)
        loaded.invoke()
        for index in outputs:
            loaded.get_tensor(index)

    return call


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
