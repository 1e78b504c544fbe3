"""The measurements of `cpu_runtime.py` in a process of their own; prints one JSON object.

    python -m benchmarks.cpu_process speed FILE INPUTS ROUNDS SLICE FOREIGN_LIMIT
    python -m benchmarks.cpu_process memory FILE INPUTS CONTENDER
    python -m benchmarks.cpu_process load FILE

INPUTS is an `.npz` of the inputs in the model's order.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import runtime
from benchmarks.interleaved import measure, ratio
from runtime.delegates.litert import LiteRtDelegate

OURS = "cpu"
PEERS = ("litert-builtin", "litert-xnnpack")
REFERENCE = "litert-reference"
CONTENDERS = (OURS, REFERENCE, *PEERS)
REFERENCE_ROUNDS = 3
MIB = 1 << 20


def main() -> int:
    """Dispatch on the first argument."""
    part, file, *rest = sys.argv[1:]
    if part == "speed":
        inputs, rounds, slice_s, limit = rest
        found = speed(file, _inputs(inputs), int(rounds), float(slice_s), float(limit))
    elif part == "memory":
        found = memory(file, _inputs(rest[0]), rest[1])
    else:
        found = load(file)
    print(json.dumps(found))
    return 0


def speed(
    file: str, inputs: list[np.ndarray], rounds: int, slice_s: float, foreign_limit: float
) -> dict[str, Any]:
    """Speed over each peer (> 1: ours is faster). The slow reference kernels have rounds of their own."""
    loaded, absent = _load_all(file)
    calls = {name: _call(model, inputs) for name, model in loaded.items()}
    if OURS not in calls:
        return {"absent": absent}
    reference = calls.pop(REFERENCE, None)
    fast = measure(calls, rounds, slice_s, foreign_limit=foreign_limit)
    over = {n: asdict(ratio(fast.seconds[n], fast.seconds[OURS])) for n in calls if n != OURS}
    best = {name: min(values) for name, values in fast.seconds.items()}
    rejected = fast.rejected
    if reference is not None:
        pair = {OURS: calls[OURS], REFERENCE: reference}
        slow = measure(pair, REFERENCE_ROUNDS, slice_s, foreign_limit=foreign_limit)
        over[REFERENCE] = asdict(ratio(slow.seconds[REFERENCE], slow.seconds[OURS]))
        best[REFERENCE] = min(slow.seconds[REFERENCE])
        rejected += slow.rejected
    return {
        "ms": {name: 1000 * value for name, value in best.items()},
        "speed_over": over,
        "operators": len(loaded[OURS].model.subgraphs[0].operators),
        "rejected_rounds": rejected,
        "absent": absent,
    }


def memory(file: str, inputs: list[np.ndarray], contender: str) -> dict[str, Any]:
    """MiB by which the peak of resident memory grows from just before loading to after two invocations."""
    open_model = _opener(contender)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _status("VmHWM")
    try:
        call = _call(open_model(file), inputs)
        call()
        call()
    except (ValueError, RuntimeError) as error:
        return {"absent": f"{type(error).__name__}: {error}"}
    return {"mib": (_status("VmHWM") - before) / MIB}


def load(file: str) -> dict[str, Any]:
    """Seconds of the fastest of several loads with allocation; MiB of resident memory that one adds."""
    open_model = _opener(OURS)
    gc.collect()
    before = _status("VmRSS")
    kept = open_model(file)
    grown = _status("VmRSS") - before
    times = []
    for _ in range(9):
        start = time.perf_counter()
        other = open_model(file)
        times.append(time.perf_counter() - start)
        del other
    del kept
    return {"mib": grown / MIB, "seconds": min(times)}


def _inputs(path: str) -> list[np.ndarray]:
    with np.load(path) as stored:
        return [stored[name] for name in stored.files]


def _load_all(file: str) -> tuple[dict[str, Any], dict[str, str]]:
    loaded, absent = {}, {}
    for name in CONTENDERS:
        try:
            loaded[name] = _opener(name)(file)
        except (ValueError, RuntimeError) as error:
            absent[name] = f"{type(error).__name__}: {error}"
    return loaded, absent


def _opener(contender: str) -> Callable[[str], Any]:
    """A function that loads and allocates; everything it needs is imported before it is returned."""
    if contender != OURS:
        resolver = contender.removeprefix("litert-")
        return LiteRtDelegate({"threads": 1, "resolver": resolver}).load

    interpreter_type = runtime.Interpreter

    def open_ours(file: str) -> Any:
        interpreter = interpreter_type(model_path=file, num_threads=1)
        interpreter.allocate_tensors()
        return interpreter

    return open_ours


def _call(model: Any, inputs: list[np.ndarray]) -> Callable[[], None]:
    """Inputs in, invoke, outputs out."""
    pairs = list(zip([d["index"] for d in model.get_input_details()], inputs, strict=True))
    outputs = [d["index"] for d in model.get_output_details()]

    def call() -> None:
        for index, value in pairs:
            model.set_tensor(index, value)
        model.invoke()
        for index in outputs:
            model.get_tensor(index)

    return call


def _status(field: str) -> int:
    """A size of this process in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


if __name__ == "__main__":
    raise SystemExit(main())
