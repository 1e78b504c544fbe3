"""Measures the starts of the GPU delegate in time and memory: cold, with a new model, and warm.

    .venv/bin/python -m benchmarks.start [--models NAME ...] [--others NAME ...] [--ways WAY ...] [--rounds 5]
                                         [--neighbours 0 1]

Every start is a process of its own: everything is imported, then the clock runs from the making of the
delegate until the tensors are allocated; one invoke follows, and the peak of memory is read.

- cold: nothing is kept, neither by us nor by the driver.
- new: the library has the kernels of the models `--others`, and nothing of this model.
- primed: the library has the kernels that `farm model prime` compiles for the zoo without this model and its
  variants, and nothing else: a network that nobody knew when the device was primed.
- warm: the model has been started before, in quiet: its recording is kept.

Each way is measured alone and beside a neighbour that burns one CPU (`--neighbours`: how many). A start that
would time candidates finds the device disturbed then and takes the rules; `disturbed` is the share of such
starts, `kept` that of starts that bound the recording of an earlier one. The mark beside a neighbour is twice
the time alone.

How many functions a start compiles is counted, which says on a busy machine too what a change does. Packing
the weights is timed apart, since a new model cannot save it. XNNPACK in LiteRT is the measure of
memory. Medians over the rounds. Writes benchmarks/results/start.json. The machine must run nothing else.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from benchmarks.campaign import farm
from benchmarks.output import RESULTS, in_a_process, parser, restored, write_figures
from runtime.measure.memory import peak_bytes
from runtime.tools.priming import networks

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
        for other in args.others if "new" in args.ways else ():
            _start(_file(other, folder), folder / "known")
        for name in args.models:
            model = _file(name, folder)
            found = {
                _named(way, burning): _medians(_starts(way, model, folder, args.rounds, burning))
                for way in args.ways
                for burning in args.neighbours
            }
            report["models"][name] = found
            print(name)
            for way, figures in found.items():
                print(f"  {way:22}", "  ".join(f"{key} {value:.3f}" for key, value in figures.items()))
    write_figures(args.out, report)
    return 0


def _file(name: str, folder: Path) -> Path:
    path = folder / f"{name}.tflite"
    path.write_bytes(restored(name))
    return path


def _named(way: str, burning: int) -> str:
    return f"{way}, {burning} burning" if burning else way


@contextmanager
def _neighbours(count: int) -> Iterator[None]:
    """So many processes beside the block, each of which burns one CPU."""
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


def _starts(way: str, model: Path, folder: Path, rounds: int, burning: int) -> list[dict[str, float]]:
    """Return each round's figures. In a warm folder the model was started twice before."""
    caches = folder / "caches"
    shutil.rmtree(caches, ignore_errors=True)
    if way == "warm":
        for _ in range(2):
            _start(model, caches)
    found = []
    for _ in range(rounds):
        if way in ("cold", "new", "primed"):
            shutil.rmtree(caches, ignore_errors=True)
        if way == "primed":
            shutil.copytree(_primed(model, folder), caches)
        if way == "new" and (folder / "known").exists():
            shutil.copytree(folder / "known", caches)
        with _neighbours(burning):
            found.append(_start(model, caches, "litert" if way == "xnnpack" else "gpu"))
    return found


WAYS = ("cold", "new", "primed", "warm", "xnnpack")


def _primed(model: Path, folder: Path) -> Path:
    """Return caches primed with every network of the zoo but this one and its variants."""
    found = folder / f"primed-{model.stem}"
    if not found.exists():
        name = model.stem.split("__")[0]
        files = [str(file) for file in networks() if file.stem.split("__")[0] != name]
        ran = farm("model", "prime", *files, stdout=subprocess.DEVNULL, **_environment(found))
        ran.check_returncode()
    return found


def _environment(caches: Path) -> dict[str, str]:
    environment = {}
    for variable in CACHES:
        (caches / variable).mkdir(parents=True, exist_ok=True)
        environment[variable] = str(caches / variable)
    return environment


def _start(model: Path, caches: Path, delegate: str = "gpu") -> dict[str, float]:
    environment = os.environ | _environment(caches)
    return in_a_process("start", "--one", str(model), "--delegate", delegate, env=environment)


def _medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    shares = ("disturbed", "kept")
    return {key: (fmean if key in shares else median)(found[key] for found in rounds) for key in rounds[0]}


def _started(path: str, delegate: str) -> dict[str, float]:
    """Return the figures of this process, which does nothing else."""
    packing, compiled = [0.0], [0]
    settings: Mapping[str, str] = {}
    if delegate == "litert":
        from ai_edge_litert.interpreter import Interpreter as Peer  # noqa: PLC0415  # only where it is measured

        start = time.perf_counter()
        model: Any = Peer(model_path=path, num_threads=len(os.sched_getaffinity(0)))
    else:
        from runtime.api.interpreter import Interpreter  # noqa: PLC0415  # as above
        from runtime.delegates.gpu.delegate import GpuDelegate  # noqa: PLC0415  # as above

        GpuDelegate.preload()
        _time_packing(packing)
        _count_compiled(compiled)
        start = time.perf_counter()
        opened = GpuDelegate({})
        model = Interpreter(model_path=path, experimental_delegates=[opened])
    model.allocate_tensors()
    seconds = time.perf_counter() - start
    if delegate == "gpu":
        settings = opened.describe()
    for given in model.get_input_details():
        model.set_tensor(given["index"], np.ones(given["shape"], given["dtype"]))
    start = time.perf_counter()
    model.invoke()
    return {
        "start_s": seconds,
        "packing_s": packing[0],
        "compiled": compiled[0],
        "disturbed": float("disturbed" in settings),
        "kept": float(settings.get("recording") == "kept"),
        "first_invoke_s": time.perf_counter() - start,
        # Not that of getrusage, which begins with the peak of the process that started this one.
        "peak_mib": peak_bytes() / (1 << 20),
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


def _count_compiled(total: list[int]) -> None:
    """Count the functions that compilers are asked for, without those of the trial of calls by address."""
    from runtime.delegates.gpu.backends.opencl.compilers import Compilers  # noqa: PLC0415  # as above

    original = Compilers.compile

    def counted(self: Any, form: Any, common: str, kernels: Sequence[Any], take: Any) -> None:
        total[0] += len(kernels) if form != "trial" else 0
        original(self, form, common, kernels, take)

    Compilers.compile = counted  # type: ignore[method-assign]


def _arguments() -> argparse.Namespace:
    options = parser(__doc__, RESULTS / "start.json")
    options.add_argument("--models", nargs="+", default=MODELS)
    options.add_argument("--others", nargs="*", default=OTHERS)
    options.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--neighbours", nargs="+", type=int, default=(0, 1))
    options.add_argument("--one", help=argparse.SUPPRESS)
    options.add_argument("--delegate", default="gpu", help=argparse.SUPPRESS)
    return options.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
