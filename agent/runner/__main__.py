"""The runner's ten modes, each a process of its own.

python -m agent.runner --probe [--releases NAME@VERSION,…] [--known FINDINGS] [--without-drivers WHY]
                                                       this host's devices as JSON
python -m agent.runner --adapters                      the adapters of WebGPU as JSON
python -m agent.runner --check [--again]               operators of each OpenCL device against the CPU path
python -m agent.runner --explain MODEL KIND OPTIONS    the operators that a delegate would run, as JSON
python -m agent.runner JOB.json FOLDER                 decide: run what follows, judge, write the result
python -m agent.runner --attached JOB.json FOLDER      the same at a device that is attached to this host
python -m agent.runner --reference JOB.json KIND FILE
python -m agent.runner --measure JOB.json FOLDER INDEX TUNING DESCRIPTOR
python -m agent.runner --pass NAME JOB.json FOLDER DESCRIPTOR   a module of agent/runner/passes
python -m agent.runner --sensors JOB.json...           read the sensors of the jobs' devices until SIGTERM
"""

from __future__ import annotations

import gc
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

# Not at run time: these modules define models, before which `main` has to set Pydantic's variable.
if TYPE_CHECKING:
    from agent.devices import CheckReport, ProbeReport
    from agent.runner.probe.webgpu_adapters import AdapterReport
    from agent.wire.profile import Explained

_PROBE_OPTIONS = frozenset({"--releases", "--known", "--without-drivers"})

USAGE_EXIT_CODE = 2
"""The exit code for arguments that are not understood: that of `argparse` and of shells."""


def main(arguments: list[str]) -> int:
    """Import only what the mode needs. Returns the exit code."""
    # Pydantic would look through what all packages register, and let theirs take part in a measurement.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "true"
    match arguments:
        case ["--probe", *options] if len(options) % 2 == 0 and {*options[::2]} <= _PROBE_OPTIONS:
            given = dict(zip(options[::2], options[1::2], strict=True))
            listed = _imported("agent.runner.probe.probe").probe(
                without_drivers=given.get("--without-drivers"),
                releases=given.get("--releases", "").split(","),
                known=json.loads(given.get("--known", "{}")),
            )
            _write(listed)
        case ["--adapters"]:
            _write(_imported("agent.runner.probe.webgpu_adapters").list_adapters())
        case ["--check"]:
            _write(_imported("agent.runner.probe.operator_check").check(again=False))
        case ["--check", "--again"]:
            _write(_imported("agent.runner.probe.operator_check").check(again=True))
        case ["--explain", model, kind, options]:
            _write(_imported("agent.runner.advice").explain(Path(model), kind, options))
        case ["--measure", job, folder, *numbers] if len(numbers) == 3 and all(map(str.isdecimal, numbers)):
            measure = _imported("agent.runner.turns.measure").measure_process
            measure(Path(job), Path(folder), *map(int, numbers))
        case ["--pass", name, job, folder, number] if name.isidentifier() and number.isdecimal():
            run_pass = _imported("agent.runner.passes.process_frame").run_pass
            run_pass(name, Path(job), Path(folder), int(number))
        case ["--sensors", *jobs] if jobs:
            _imported("agent.runner.passes.telemetry").sensors_process([Path(job) for job in jobs])
        case ["--reference", job, kind, target]:
            _imported("agent.runner.turns.measure").reference_process(Path(job), kind, Path(target))
        case ["--attached", job, _]:
            _imported("agent.runner.attached.conduct").run_attached(Path(job))
        case [job, folder] if not job.startswith("-"):
            _imported("agent.runner.decide").run_attempt(Path(job))
        case _:
            sys.stderr.write(f"usage:\n{__doc__}")
            return USAGE_EXIT_CODE
    return 0


def _imported(name: str) -> ModuleType:
    """Import a module, without looking for garbage: modules are none, and it takes a twelfth of the time."""
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.enable()


def _write(report: ProbeReport | AdapterReport | CheckReport | Explained) -> None:
    sys.stdout.write(report.model_dump_json() + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
