"""How long the GPU delegate takes to start, and in how much memory: cold, with a new model, and warm.

    .venv/bin/python -m benchmarks.start [--models NAME ...] [--others NAME ...] [--rounds 5] [--out FILE]

Every start is a process of its own: everything is imported, then the clock runs from the making of the
delegate until the tensors are allocated; one invoke follows, and the peak of memory is read.

- cold: nothing is kept, neither by us nor by the driver.
- new: the library has the kernels of the models `--others`, and nothing of this model.
- warm: the model has been started before.

Packing the weights is timed apart, since a new model cannot save it. XNNPACK in LiteRT is the measure of
memory. Medians over the rounds. Writes benchmarks/results/start.json. The machine must run nothing else: what
is timed while other programs have the cores is not remembered, and such starts stay longer.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.models.collection import zoo_model

RESULT = Path(__file__).resolve().parent / "results/start.json"
MODELS = ("torchvision_mobilenet_v2", "torchvision_resnet18", "torchvision_wide_resnet101_2")
OTHERS = ("torchvision_mobilenet_v3_large", "torchvision_resnet50", "torchvision_googlenet")
CACHES = ("FARM_CACHE_DIR", "POCL_CACHE_DIR", "XDG_CACHE_HOME", "CUDA_CACHE_PATH", "MESA_SHADER_CACHE_DIR")
"""Every cache of kernels, ours, pyopencl's and the drivers'."""


def main() -> int:
    """Measure all models in all ways, print, write."""
    args = _arguments()
    if args.one:
        print(json.dumps(_started(args.one, args.delegate)))
        return 0
    report: dict[str, Any] = {"cpus": len(os.sched_getaffinity(0)), "rounds": args.rounds, "models": {}}
    with tempfile.TemporaryDirectory(prefix="farm-start-") as temporary:
        folder = Path(temporary)
        for other in args.others:
            _start(_file(other, folder), folder / "known")
        for name in args.models:
            model = _file(name, folder)
            found = {way: _medians(_starts(way, model, folder, args.rounds)) for way in WAYS}
            report["models"][name] = found
            print(name)
            for way, figures in found.items():
                print(f"  {way:8}", "  ".join(f"{key} {value:.3f}" for key, value in figures.items()))
    args.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


def _file(name: str, folder: Path) -> Path:
    """A model of the zoo as a file."""
    path = folder / f"{name}.tflite"
    path.write_bytes(zoo_model(name))
    return path


def _starts(way: str, model: Path, folder: Path, rounds: int) -> list[dict[str, float]]:
    """The figures of each round. A warm folder is one in which the model was started twice."""
    caches = folder / "caches"
    shutil.rmtree(caches, ignore_errors=True)
    if way == "warm":
        for _ in range(2):
            _start(model, caches)
    found = []
    for _ in range(rounds):
        if way in ("cold", "new"):
            shutil.rmtree(caches, ignore_errors=True)
        if way == "new" and (folder / "known").exists():
            shutil.copytree(folder / "known", caches)
        found.append(_start(model, caches, "litert" if way == "xnnpack" else "gpu"))
    return found


WAYS = ("cold", "new", "warm", "xnnpack")


def _start(model: Path, caches: Path, delegate: str = "gpu") -> dict[str, float]:
    """One start in a new process whose caches lie in a folder."""
    environment = dict(os.environ)
    for variable in CACHES:
        (caches / variable).mkdir(parents=True, exist_ok=True)
        environment[variable] = str(caches / variable)
    command = [
        sys.executable,
        "-m",
        "benchmarks.start",
        "--one",
        str(model),
        "--delegate",
        delegate,
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: median(found[key] for found in rounds) for key in rounds[0]}


def _started(path: str, delegate: str) -> dict[str, float]:
    """The figures of this process, which does nothing else."""
    packing = [0.0]
    if delegate == "litert":
        from ai_edge_litert.interpreter import Interpreter as Peer  # noqa: PLC0415  # only where it is measured

        start = time.perf_counter()
        model: Any = Peer(model_path=path, num_threads=len(os.sched_getaffinity(0)))
    else:
        from runtime.delegates.gpu.delegate import GpuDelegate  # noqa: PLC0415  # as above
        from runtime.interpreter import Interpreter  # noqa: PLC0415  # as above

        GpuDelegate.preload()
        _time_packing(packing)
        start = time.perf_counter()
        model = Interpreter(model_path=path, experimental_delegates=[GpuDelegate({})])
    model.allocate_tensors()
    seconds = time.perf_counter() - start
    for given in model.get_input_details():
        model.set_tensor(given["index"], np.ones(given["shape"], given["dtype"]))
    start = time.perf_counter()
    model.invoke()
    return {
        "start_s": seconds,
        "packing_s": packing[0],
        "first_invoke_s": time.perf_counter() - start,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _time_packing(total: list[float]) -> None:
    """Add up the seconds for which weights are packed, be it for timing candidates or for use."""
    from runtime.delegates.gpu.backends.opencl.recording import OpenClRecording  # noqa: PLC0415  # as above

    original = OpenClRecording._pack

    def timed(*args: Any) -> Any:
        start = time.perf_counter()
        try:
            return original(*args)
        finally:
            total[0] += time.perf_counter() - start

    OpenClRecording._pack = timed  # type: ignore[method-assign]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--others", nargs="*", default=OTHERS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--delegate", default="gpu", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
