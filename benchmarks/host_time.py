"""Times a run on the GPU delegate for the caller's thread: until `run_async` returns, and in all.

    .venv/bin/python -m benchmarks.host_time [--launches 65] [--runs 2000] [--out FILE]

Three models, each on buffers that it uses without a copy: a chain of small products, which one group runs in
one enqueue; a chain of products that are each enqueued for all threads; and one of large products, which runs
for tens of milliseconds. `returns` is the wall time until `run_async` has returned, `processor` the time of
the caller's thread for starting a run and waiting for it. The marks, in the median: 60 microseconds of the
processor for 65 launches, and 1 ms until the last model's run has returned. Writes
benchmarks/results/host_time.json. The machine must run nothing else.
"""

import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.output import RESULTS, parser, write_figures
from runtime.api.compiled_model import CompiledModel
from runtime.measure.samples.summary import percentile
from tests.runtime.delegates.gpu.caller_models import dense, on_gpu

WARM_UP = 20
"""Runs before the first that counts: the first ones fill caches and bind the buffers."""
SMALL, MEDIUM, LARGE = 16, 64, 1024
"""Channels of a product of each model: they take less than a microsecond, microseconds and milliseconds."""
SMALL_ROWS, MEDIUM_ROWS = 4, 32
"""Rows of the first two models' products, which decide whether those are small to `gpu/schedules.py`."""
LARGE_ROWS, LARGE_LAYERS, LARGE_RUNS = 1024, 4, 50
"""The shape of the last model, 9 GFLOP, and how often it runs: each takes tens of milliseconds."""


def main() -> int:
    """Measure all models, print, write."""
    options = parser(__doc__, RESULTS / "host_time.json")
    options.add_argument("--launches", type=int, default=65)
    options.add_argument("--runs", type=int, default=2000)
    args = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="farm-host-time-") as folder:
        # A tanh behind each product is fused: one launch for each of them.
        small = dense(SMALL_ROWS, np.eye(SMALL, dtype=np.float32), args.launches)
        medium = dense(MEDIUM_ROWS, np.eye(MEDIUM, dtype=np.float32), args.launches)
        large = dense(LARGE_ROWS, np.eye(LARGE, dtype=np.float32), LARGE_LAYERS)
        report = {
            f"{args.launches} small products": _measured(small, folder, args.runs),
            f"{args.launches} products": _measured(medium, folder, args.runs),
            "large products": _measured(large, folder, LARGE_RUNS),
        }
    for name, figures in report.items():
        print(name)
        for key, value in figures.items():
            print(f"  {key:24} {value}")
    write_figures(args.out, report)
    return 0


def _measured(model: bytes, folder: str, runs: int) -> dict[str, Any]:
    with on_gpu(model, cache_dir=folder) as compiled:
        inputs, outputs = compiled.create_input_buffers(0), compiled.create_output_buffers(0)
        # Not waited for: runs follow one another, and the warm-up waits for those behind it.
        copies = compiled.run_async(inputs, outputs).copies
        for _ in range(WARM_UP):
            compiled.run_by_index(0, inputs, outputs)
        samples = [_sample(compiled, inputs, outputs) for _ in range(runs)]
    returned, processor, whole = zip(*samples, strict=True)
    return {
        "returns us": _figures(returned),
        "processor us": _figures(processor),
        "run us": _figures(whole),
        "copies": list(copies),
    }


def _sample(
    compiled: CompiledModel, inputs: Sequence[Any], outputs: Sequence[Any]
) -> tuple[float, float, float]:
    """Seconds until a run has returned, of the thread, and until the run has ended."""
    thread, start = time.thread_time(), time.perf_counter()
    event = compiled.run_async(inputs, outputs)
    returned = time.perf_counter()
    event.wait()
    ended = time.perf_counter()
    return returned - start, time.thread_time() - thread, ended - start


def _figures(seconds: Sequence[float]) -> dict[str, float]:
    return {name: round(percentile(seconds, q) * 1e6, 1) for name, q in (("median", 0.5), ("p99", 0.99))}


if __name__ == "__main__":
    raise SystemExit(main())
