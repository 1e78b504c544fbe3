"""The steps of a first contact with a GPU, each in a process of its own: a driver may hang or end it.

`python -m benchmarks.first_contact_steps STEP [ARGUMENTS]` prints the step's figures as a line of JSON.
"""

import argparse
import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from benchmarks.output import restored
from delegate_farm import Interpreter, load_delegate
from runtime.common.installation import installed_version
from runtime.delegates.base import PartitionDelegate
from runtime.delegates.gpu.backends.opencl.device import identity, open_device
from runtime.delegates.gpu.backends.opencl.peaks import measure_peaks
from runtime.delegates.gpu.backends.opencl.program import built
from runtime.delegates.gpu.lowering.matmul.conv import groups
from runtime.errors import UnsupportedPrecisionError
from runtime.measure.inputs import make_pool, ranged
from runtime.model.reader import read_model
from tests.models.comparison import run_rows
from tests.runtime.delegates.gpu.caller_models import dense

Figures = dict[str, Any]

LIBRARIES: Final = (
    "libOpenCL.so.1", "libcuda.so.1", "libnvidia-opencl.so.1", "libnvidia-ml.so.1", "libnvrtc.so.12",
    "libamdocl64.so", "libamdhip64.so", "libigdrcl.so", "libze_loader.so.1", "libpocl.so.2", "libvulkan.so.1",
    "libEGL.so.1",
)  # fmt: skip
"""Libraries of drivers and loaders, by the names under which programs load them."""

PACKAGES: Final = ("pyopencl", "wgpu", "nvidia-ml-py", "torch", "ai-edge-litert", "numpy")

ASKED: Final = "name,driver_version,uuid,compute_mode,persistence_mode,mig.mode.current,clocks.sm,power.limit"
"""Properties of each of NVIDIA's GPUs that decide whether it can be measured."""

SIDES: Final = (256, 512, 1024, 2048, 4096)
"""Sides of the square product: the largest is taken that needs at most `PRODUCT_S` at the device's peak."""

PRODUCT_S: Final = 0.003
"""Seconds of the product at the peak: long beside a launch, and short where kernels reach a tenth of it."""

COPIED: Final = (4 << 10, 1 << 20, 64 << 20)
"""Bytes of a copy: one that is all overhead, one as an image, one that is all bandwidth."""

EMPTY: Final = "__kernel void empty(__global float *out) { if (out == 0) out[0] = 0.0f; }"

LAUNCHES, TRIES = 200, 9
"""Launches of a batch, and takes of each figure, of which the median counts."""

TAKES_S: Final = 1.0
"""Seconds after which no further take of a figure begins: models of software adapters take some for one."""

ROUNDS: Final = 5
"""Runs that a profile of a model or a product takes: kernels by their own times."""


def drivers() -> Figures:
    """Return what this machine has of drivers, libraries, device nodes and Python packages."""
    nodes = [path for pattern in ("nvidia*", "dri/*", "kfd", "dxg") for path in Path("/dev").glob(pattern)]
    return {
        "system": f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} CPUs",
        "libraries": {name: _loads(name) for name in LIBRARIES},
        "icd": {path.name: path.read_text().strip() for path in Path("/etc/OpenCL/vendors").glob("*.icd")},
        "nodes": sorted(map(str, nodes)),
        "nvidia-smi": _said("nvidia-smi", f"--query-gpu={ASKED}", "--format=csv,noheader"),
        "packages": {name: installed_version(name) or "not installed" for name in PACKAGES},
    }  # fmt: skip


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _said(program: str, *arguments: str) -> list[str]:
    found = shutil.which(program)
    if found is None:
        return []
    done = subprocess.run([found, *arguments], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def host(device: int | None) -> Figures:
    """Return the device's peaks, and the microseconds of launches and copies."""
    import pyopencl as cl  # noqa: PLC0415 - loads the drivers

    opened = open_device(device)
    known, queue = opened.capabilities, cl.CommandQueue(opened.context)
    kernel = cl.Kernel(built(opened.context, EMPTY), "empty")
    kernel.set_args(out := cl.Buffer(opened.context, cl.mem_flags.READ_WRITE, 64))

    def launch() -> None:
        cl.enqueue_nd_range_kernel(queue, kernel, (64,), (64,))

    def batch() -> None:
        for _ in range(LAUNCHES):
            launch()

    def finished(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            work()
            queue.finish()

        return run

    _warm(finished(batch))
    times = {
        "launch and finish": _median_us(finished(launch)),
        # The queue is emptied behind the clock, so that the host's work alone is timed.
        "enqueue of a launch": _median_us(batch, queue.finish) / LAUNCHES,
        "a launch in a queue": _median_us(finished(batch)) / LAUNCHES,
    }
    out.release()
    for size in COPIED:
        target = cl.Buffer(opened.context, cl.mem_flags.READ_WRITE, size)
        # A mapped buffer in the host's memory: OpenCL's way to memory that the driver has page-locked.
        pinned = cl.Buffer(opened.context, cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR, size)
        access: Any = cl.map_flags.READ | cl.map_flags.WRITE
        mapped: Any = cl.enqueue_map_buffer(queue, pinned, access, 0, (size,), np.dtype(np.uint8))[0]
        for kind, memory in (("pageable", np.zeros(size, np.uint8)), ("pinned", mapped)):
            # Pages exist only once they are written.
            memory[:] = 1
            for way, ends in (("to", (target, memory)), ("from", (memory, target))):
                name = f"copy {way} the device, {size >> 10} KiB, {kind}"
                times[name] = _median_us(partial(cl.enqueue_copy, queue, *ends, is_blocking=True))
        mapped.base.release(queue)
    extensions = opened.device.extensions.split()
    return {
        "device": known.name, "platform": known.platform, "driver": known.driver, "is_gpu": known.is_gpu,
        **identity(opened.device),
        "compute units": known.compute_units, "largest group": known.max_work_group,
        "local memory": known.local_memory_bytes, "memory": known.memory_bytes,
        "largest allocation": known.max_allocation_bytes,
        "shared memory with the host": bool(opened.device.host_unified_memory),
        "command buffers": "cl_khr_command_buffer" in extensions,
        "half": "cl_khr_fp16" in extensions, "subgroups": "cl_khr_subgroups" in extensions,
        "target": _target(opened.device, known.name),
        "peaks": {"gflops": (peaks := measure_peaks(opened)).gflops, "gigabytes": peaks.gigabytes},
        "us": {name: round(value, 2) for name, value in times.items()},
    }  # fmt: skip


def _target(device: Any, name: str) -> str:
    """Return the compiler's name of the device's architecture, empty where the driver tells none."""
    if "cl_nv_device_attribute_query" in device.extensions.split():
        return f"sm_{device.compute_capability_major_nv}{device.compute_capability_minor_nv}"
    return name.partition(":")[0] if name.startswith("gfx") else ""


def _warm(run: Callable[[], object], seconds: float = 0.2) -> None:
    """Run for as long as a GPU takes to raise its clocks."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        run()


def _median_us(run: Callable[[], object], behind: Callable[[], object] = lambda: None) -> float:
    times: list[float] = []
    while len(times) < TRIES and sum(times) < TAKES_S:
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
        behind()
    return 1e6 * sorted(times)[len(times) // 2]


def gemm(device: int | None, gflops: float) -> Figures:
    """Return what each tile reaches in each precision, and what the libraries that are here do."""
    # A product of squares is 2 n^3 operations, here in billions.
    side = next((one for one in reversed(SIDES) if 2e-9 * one**3 <= gflops * PRODUCT_S), SIDES[0])
    weights = np.random.default_rng(0).normal(0, 0.02, (side, side)).astype(np.float32)
    model = dense(side, weights, 1)
    rows = []
    for precision in ("fp32", "tf32", "fp16", "bf16"):
        for tile in groups.TILES:
            try:
                rows.append(_product(model, device, precision, tile))
            except UnsupportedPrecisionError as error:
                rows.append({"tile": "all", "precision": precision, "why": str(error)})
                break
    return {"side": side, "tiles": rows, "libraries": _libraries(side)}


def _product(model: bytes, device: int | None, precision: str, tile: groups.GroupTile) -> Figures:
    """Run the product in this tile, whichever the rule of sizes chooses."""
    # Without a cache, in which the recording of another tile would be found.
    options = {"device_class": "gpu", "precision": precision, "tuning": "none", "cache_dir": "",
               "device": device}  # fmt: skip
    with patch.object(groups, "choose_tile", lambda *_: tile):
        opened = _opened(model, options)
    details = opened.get_input_details()[0]
    x = np.random.default_rng(1).normal(size=details["shape"]).astype(np.float32)
    opened.set_tensor(details["index"], x)
    _warm(opened.invoke)
    found = opened.profile(ROUNDS).rows
    time_ns, flops = sum(row.time_ns for row in found), sum(row.flops for row in found)
    opened.close()
    # Operations a nanosecond are GFLOP/s.
    return {"tile": tile.name, "precision": precision, "function": found[0].name, "launches": len(found),
            "gflops": round(flops / time_ns, 2)}  # fmt: skip


def _opened(model: bytes, options: Mapping[str, Any]) -> Interpreter:
    given = {name: value for name, value in options.items() if value is not None}
    delegate = load_delegate("gpu", given)
    assert isinstance(delegate, PartitionDelegate)
    interpreter = Interpreter(model_content=model, experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    return interpreter


def _libraries(side: int) -> Figures:
    """Return the GFLOP/s of the same product by the vendor's library, and by numpy's on the processor."""
    square = np.full((side, side), 0.5, np.float32)
    # Over microseconds this gives GFLOP/s.
    flops = 2e-3 * side**3
    found: Figures = {"numpy, fp32, this processor": round(flops / _median_us(lambda: square @ square), 1)}
    try:
        import torch  # type: ignore[import-not-found]  # noqa: PLC0415  # of the machine, never of ours
    except ImportError as error:
        return found | {"why": f"the vendor's library was not measured: {error}"}
    if not torch.cuda.is_available():
        return found | {"why": "the vendor's library was not measured: torch finds no GPU"}
    for name, kind, reduced in (
        ("fp32", "float32", False), ("tf32", "float32", True), ("fp16", "float16", False),
        ("bf16", "bfloat16", False),
    ):  # fmt: skip
        torch.backends.cuda.matmul.allow_tf32 = reduced
        a = torch.full((side, side), 0.5, dtype=getattr(torch, kind), device="cuda")

        def run(a: Any = a) -> None:
            for _ in range(10):
                a @ a
            torch.cuda.synchronize()

        _warm(run)
        found[f"torch, {name}"] = round(flops * 10 / _median_us(run), 1)
    return found


def model(name: str, device: int | None, backend: str) -> Figures:
    """Return how a model starts and runs on one interface, kernel by kernel, and how far it is from `cpu`."""
    content = restored(name)
    plain = Interpreter(model_content=content)
    plain.allocate_tensors()
    rules = ranged({}, read_model(content).subgraphs[0])
    sets = make_pool(plain.get_input_details(), name, rules).sets[0]
    options = {"backend": backend, "cache_dir": "", "device": device if backend == "opencl" else None}
    (expected,) = run_rows(plain, [sets])
    began = time.perf_counter()
    opened = _opened(content, options)
    (found,) = run_rows(opened, [sets])
    first_s = time.perf_counter() - began
    run_us = min(_median_us(opened.invoke) for _ in range(3))
    profile = opened.profile(max(1, min(ROUNDS, int(1e6 * TAKES_S / run_us))))
    report = opened.delegation
    return {
        "model": name,
        "backend": backend,
        "error": max(map(_distance, found, expected)),
        "fallbacks": len(report.fallbacks) if report is not None else None,
        "first_s": round(first_s, 2),
        "run_us": round(run_us, 1),
        "rows": [
            {"name": row.name, "label": row.label, "us": row.time_ns / 1e3, "flops": row.flops,
             "bytes": row.bytes}
            for row in profile.rows
        ],
    }  # fmt: skip


def _distance(y: np.ndarray[Any, Any], r: np.ndarray[Any, Any]) -> float:
    difference = np.linalg.norm(y.astype(np.float64) - r.astype(np.float64))
    return float(difference / max(float(np.linalg.norm(r.astype(np.float64))), 1e-30))


def main() -> int:
    """Do one step."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("step", choices=("drivers", "host", "gemm", "model"))
    given.add_argument("--device", type=int)
    given.add_argument("--gflops", type=float)
    given.add_argument("--model")
    given.add_argument("--backend")
    args = given.parse_args()
    steps: dict[str, Callable[[], Figures]] = {
        "drivers": drivers,
        "host": lambda: host(args.device),
        "gemm": lambda: gemm(args.device, args.gflops),
        "model": lambda: model(args.model, args.device, args.backend),
    }
    print(json.dumps(steps[args.step]()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
