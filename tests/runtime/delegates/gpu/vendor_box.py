"""PoCL behind a layer of the OpenCL loader, as GPUs of a vendor: what its driver does is a scenario.

`python -m tests.runtime.delegates.gpu.vendor_box CACHE DEVICE ROWS SIDE` runs a model there, products of ROWS
rows with SIDE x SIDE weights, and prints as JSON what it found.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from runtime.errors import FarmRuntimeError
from runtime.model.schema import BuiltinOperator as Op
from tests import needs
from tests.runtime.delegates.gpu.caller_models import on_gpu
from tests.runtime.models import Builder

SOURCE = Path(__file__).with_name("vendor_layer.c")


@dataclass(frozen=True, slots=True)
class Box:
    """A driver. `exclusive`: one process at a time has contexts; `largest_group`: of kernels once they are
    built whose names have one of the parts `limited`, all by default; `lost_at`: the launch with which the
    device is lost, which is told with it or, `later`, behind it; `hangs_at`: the launch behind which nothing
    ends. Both are faults of the device `faulty`, which last, or `fault` is the file with which they go.
    `memory_mib`: of each device, of which a buffer may have a quarter; 0 stands for the machine's.
    """

    devices: int = 1
    exclusive: bool = False
    refuses_binaries: bool = False
    refuses_null: bool = False
    largest_group: int = 1024
    limited: tuple[str, ...] = ("",)
    event_us: int = 0
    lost_at: int = 0
    later: bool = False
    hangs_at: int = 0
    faulty: int = 0
    fault: Path | None = None
    memory_mib: int = 0

    def environment(self, folder: Path) -> dict[str, str]:
        """Build the layer in a folder; return the variables by which a process gets it."""
        library = folder / "vendor.so"
        chosen = {
            "REFUSES_BINARIES": int(self.refuses_binaries),
            "REFUSES_NULL": int(self.refuses_null),
            "LARGEST_GROUP": self.largest_group,
            "LIMITED": f'",{",".join(self.limited)},"',
            "EVENT_US": self.event_us,
            "LOST_AT": self.lost_at,
            "FAILS_LATER": int(self.later),
            "HANGS_AT": self.hangs_at,
            "FAULTY_DEVICE": self.faulty,
            "FAULT_FILE": f'"{self.fault or ""}"',
            "MEMORY_MIB": self.memory_mib,
        }
        flags = [f"-D{name}={value}" for name, value in chosen.items()]
        flags += [f'-DEXCLUSIVE="{folder / "gpu"}"'] if self.exclusive else []
        command = [needs.compiler(), "-std=gnu11", "-O1", "-shared", "-fPIC", *flags, "-o", str(library)]
        subprocess.run([*command, str(SOURCE)], check=True)
        return {"OPENCL_LAYERS": str(library), "POCL_DEVICES": " ".join(["pthread"] * self.devices)}

    def ran(self, folder: Path, device: int = 0, rows: int = 8, side: int = 48) -> dict[str, Any]:
        """Run the model in a process on this driver, with a cache in the folder."""
        module = "tests.runtime.delegates.gpu.vendor_box"
        done = subprocess.run(
            [sys.executable, "-m", module, str(folder / "cache"), str(device), str(rows), str(side)],
            env={**os.environ, **self.environment(folder)},
            cwd=needs.REPOSITORY,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout.splitlines()[-1]))


def products(rows: int, side: int, weights: list[np.ndarray]) -> bytes:
    """Build a chain of products, each with weights of its own."""
    b = Builder()
    value = b.input(np.float32, (rows, side))
    for one in weights:
        x, value = value, b.tensor(np.float32, (rows, side))
        b.operator(Op.FULLY_CONNECTED, [x, b.constant(one), -1], [value])
    return b.write([value])


def main() -> None:
    """Run the model four times on one device, and say what came of it."""
    cache, device, rows, side = sys.argv[1], *map(int, sys.argv[2:])
    random = np.random.default_rng(7)
    weights = [random.normal(0, side**-0.5, (side, side)).astype(np.float32) for _ in range(2)]
    x = random.normal(size=(rows, side)).astype(np.float32)
    expected = x @ weights[0].T @ weights[1].T
    said: dict[str, Any] = {}
    try:
        with on_gpu(products(rows, side, weights), cache_dir=cache, device=device) as compiled:
            inputs, outputs = compiled.create_input_buffers(0), compiled.create_output_buffers(0)
            inputs[0].write(x)
            for _ in range(4):
                compiled.run_by_index(0, inputs, outputs)
            found = outputs[0].read(x.size, np.float32).reshape(x.shape)
            error = float(np.abs(found - expected).max())
            (gpu,) = compiled._delegates
            said = {
                "error": error,
                "device": compiled.opencl_context.devices[0].name,
                "smaller_tiles": gpu.describe().get("smaller_tiles", ""),
            }
    except FarmRuntimeError as error:
        said = {"fault": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
