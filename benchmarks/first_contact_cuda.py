"""The stages of a first contact with CUDA, each in a process of its own; each goes through those before it.

`python -m benchmarks.first_contact_cuda STAGE` prints what it found as a line of JSON; a stage that fails
ends with the error of the call that refused.
"""

import argparse
import ctypes
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from delegate_farm import Interpreter, load_delegate
from runtime.delegates.base import PartitionDelegate
from runtime.delegates.gpu.backends.cuda.device import (
    OpenedDevice,
    driver_version,
    kernel_driver,
    list_devices,
    open_device,
)
from runtime.delegates.gpu.backends.cuda.library import KernelLibrary, assembled
from runtime.delegates.gpu.backends.cuda.ptx import Compiler
from runtime.delegates.gpu.backends.cuda.recording import PARAMETERS
from runtime.delegates.gpu.keep.cache import Cache
from runtime.delegates.gpu.layout.source import Kernel, Source
from runtime.model.schema import BuiltinOperator
from tests.models.comparison import run_rows
from tests.runtime.delegates.gpu.caller_models import dense
from tests.runtime.delegates.gpu.test_integer_path import layer
from tests.runtime.ops.test_halves import pools

Figures = dict[str, Any]

ITEMS: Final = 64
FIRST: Final = Kernel(
    "first",
    "__kernel void first(__global int *arena, __global const int *constants, __global const int *table, const"
    " int layer) { const int i = get_global_id(0); arena[i] = constants[i] + table[i] * layer; }",
)
"""A kernel with the parameters of all kernels, whose result shows each of them."""


def _driver() -> Figures:
    names = [{"name": one.name, "uuid": one.uuid, "pci": one.pci, "target": one.target, "mode": one.mode}
             for one in list_devices()]  # fmt: skip
    return {"version": driver_version(), "kernel driver": kernel_driver(), "devices": names}


def _context() -> Figures:
    """Retain the primary context of the first device."""
    known = open_device(None).capabilities
    return {"name": known.name, "units": known.compute_units, "shared": known.local_memory_bytes}


def _ptx() -> Figures:
    """Translate a kernel, and let the driver assemble it."""
    opened = open_device(None)
    ptx = Compiler.found().ptx(FIRST, opened.device.target)
    with opened.current():
        return {"ptx bytes": len(ptx.text), "code bytes": len(assembled(FIRST.name, ptx))}


def _kernel() -> Figures:
    """Launch that kernel, and compare its result."""
    opened = open_device(None)
    with opened.current():
        # What `FIRST` computes: constants[i] + table[i] * layer.
        _expect(_first(opened), np.arange(ITEMS, dtype=np.int32) + 3 * 7)
    return {"items": ITEMS}


def _first(opened: OpenedDevice) -> np.ndarray[Any, Any]:
    with opened.current() as cuda:
        (loaded,) = KernelLibrary(opened, Cache(None)).load(Source((FIRST,), {}, {})).kernels
        given = [np.zeros(ITEMS, np.int32), np.arange(ITEMS, dtype=np.int32), np.full(ITEMS, 3, np.int32)]
        places = [cuda.handle("cuMemAlloc_v2", one.nbytes) for one in given]
        for place, one in zip(places, given, strict=True):
            cuda.call("cuMemcpyHtoD_v2", place, one.ctypes.data, one.nbytes)
        values = [kind(value) for kind, value in zip(PARAMETERS, (*places, 7), strict=True)]
        parameters = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        cuda.call("cuLaunchKernel", loaded.function, 1, 1, 1, ITEMS, 1, 1, 0, None, parameters, None)
        result = given[0]
        cuda.call("cuMemcpyDtoHAsync_v2", result.ctypes.data, places[0], result.nbytes, None)
        cuda.call("cuStreamSynchronize", None)
        return result


def _graph() -> Figures:
    """Record a matrix product and its epilogue, launch it as a graph, and compare it with the CPU path."""
    return {"error": _error("fp32", 1e-3)}


def _matrices() -> Figures:
    """Do the same by the matrix units, where there are any: the lanes of a warp hold what PTX documents."""
    return {precision: _error(precision, 2e-2) for precision in ("tf32", "fp16", "bf16")}


def _halves() -> Figures:
    """Leave means of windows for others in memory as fp16: they are no further off than a rounding."""
    return {"error": _error("fp16", 2**-11, pools(1024))}


def _bytes() -> Figures:
    """Multiply levels by `dp4a`: the result has the bits of the CPU path."""
    found, expected = _outputs(layer(BuiltinOperator.CONV_2D, (1, 14, 14, 96), (128, 3, 3, 96), 0), "int8")
    _expect(found.ravel(), expected.ravel())
    return {"levels": found.size}


def _error(precision: str, most: float, model: bytes | None = None) -> float:
    """Return the largest error of a product, or a model, which may be `most` of the largest result."""
    weights = np.random.default_rng(0).normal(0, 0.02, (256, 256)).astype(np.float32)
    found, expected = _outputs(model or dense(256, weights, 1), precision)
    error = float(np.abs(found - expected).max())
    # Not `>`, which is false for a NaN.
    if not error <= most * float(np.abs(expected).max()):
        raise SystemExit(f"in {precision} the graph's result is {error:g} from the CPU path's")
    return error


def _outputs(model: bytes, precision: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the device's output of a model of one layer, and the CPU path's."""
    options = {"backend": "cuda", "tuning": "none", "cache_dir": "", "precision": precision,
               "require_full_delegation": True, "require_narrow_products": precision == "int8"}  # fmt: skip
    delegate = load_delegate("gpu", options)
    assert isinstance(delegate, PartitionDelegate)
    return _output(model, [delegate]), _output(model, [])


def _output(model: bytes, delegates: list[Any]) -> np.ndarray[Any, Any]:
    interpreter = Interpreter(model_content=model, experimental_delegates=delegates)
    details = interpreter.get_input_details()[0]
    x = np.random.default_rng(1).normal(0, 1 if details["dtype"] == np.float32 else 50, details["shape"])
    return run_rows(interpreter, [[x.astype(details["dtype"])]])[0][0]


def _expect(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    if not np.array_equal(found, expected):
        raise SystemExit(f"the kernel gives {found[:4]}…, and {expected[:4]}… is right")


STAGES: Final[Mapping[str, Callable[[], Figures]]] = {
    "driver": _driver, "context": _context, "ptx": _ptx, "kernel": _kernel, "graph": _graph,
    "matrices": _matrices, "halves": _halves, "bytes": _bytes,
}  # fmt: skip


def main() -> int:
    """Do one stage."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("stage", choices=STAGES)
    print(json.dumps(STAGES[given.parse_args().stage]()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
