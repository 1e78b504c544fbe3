"""PoCL behind a layer of the OpenCL loader, as GPUs of a vendor: what its driver does is a scenario.

`python -m tests.runtime.delegates.gpu.vendor_box CACHE DEVICE` runs a model there and prints as JSON what it
found.
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
from tests import needs
from tests.runtime.delegates.gpu.caller_models import EXPECTED, X, dense, filled, on_gpu, results

SOURCE = Path(__file__).with_name("vendor_layer.c")


@dataclass(frozen=True, slots=True)
class Box:
    """A driver. `exclusive`: one process at a time has contexts; `largest_group`: of every kernel once it is
    built; `lost_at`: the launch with which the device is lost, which is told with it or, `later`, behind it.
    """

    devices: int = 1
    exclusive: bool = False
    refuses_binaries: bool = False
    refuses_null: bool = False
    largest_group: int = 1024
    event_us: int = 0
    lost_at: int = 0
    later: bool = False

    def environment(self, folder: Path) -> dict[str, str]:
        """Build the layer in a folder; return the variables by which a process gets it."""
        library = folder / "vendor.so"
        chosen = {
            "REFUSES_BINARIES": int(self.refuses_binaries),
            "REFUSES_NULL": int(self.refuses_null),
            "LARGEST_GROUP": self.largest_group,
            "EVENT_US": self.event_us,
            "LOST_AT": self.lost_at,
            "FAILS_LATER": int(self.later),
        }
        flags = [f"-D{name}={value}" for name, value in chosen.items()]
        flags += [f'-DEXCLUSIVE="{folder / "gpu"}"'] if self.exclusive else []
        command = [needs.compiler(), "-std=gnu11", "-O1", "-shared", "-fPIC", *flags, "-o", str(library)]
        subprocess.run([*command, str(SOURCE)], check=True)
        return {"OPENCL_LAYERS": str(library), "POCL_DEVICES": " ".join(["pthread"] * self.devices)}

    def ran(self, folder: Path, device: int = 0) -> dict[str, Any]:
        """Run the model in a process on this driver, with a cache in the folder."""
        module = "tests.runtime.delegates.gpu.vendor_box"
        done = subprocess.run(
            [sys.executable, "-m", module, str(folder / "cache"), str(device)],
            env={**os.environ, **self.environment(folder)},
            cwd=needs.REPOSITORY,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Run the model four times on one device, and say what came of it."""
    said: dict[str, Any] = {}
    try:
        with on_gpu(dense(), cache_dir=sys.argv[1], device=int(sys.argv[2])) as compiled:
            inputs, outputs = compiled.create_input_buffers(0), compiled.create_output_buffers(0)
            filled(inputs[0], X)
            for _ in range(4):
                compiled.run_by_index(0, inputs, outputs)
            error = np.abs(results(outputs[0]) - EXPECTED).max()
            said = {"error": float(error), "device": compiled.opencl_context.devices[0].name}
    except FarmRuntimeError as error:
        said = {"fault": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
