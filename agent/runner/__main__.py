"""The runner's five modes, each a process of its own.

python -m agent.runner --probe [--without-opencl WHY]  this host's devices as JSON on stdout
python -m agent.runner JOB.json FOLDER                 decide: run what follows, judge, write the result
python -m agent.runner --reference JOB.json KIND FILE
python -m agent.runner --measure JOB.json FOLDER INDEX
python -m agent.runner --labelled JOB.json FOLDER
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.devices import ProbeReport

USAGE_EXIT_CODE = 2
"""The exit code for arguments that are not understood: that of `argparse` and of shells."""


def main(arguments: list[str]) -> int:
    """Import only what the mode needs. Returns the exit code."""
    match arguments:
        case ["--probe"]:
            _write(import_module("agent.runner.probe").probe())
        case ["--probe", "--without-opencl", why]:
            _write(import_module("agent.runner.probe").probe(without_opencl=why))
        case ["--measure", job, folder, index] if index.isdecimal():
            import_module("agent.runner.measure").measure_process(Path(job), Path(folder), int(index))
        case ["--labelled", job, folder]:
            import_module("agent.runner.labelled").labelled_process(Path(job), Path(folder))
        case ["--reference", job, kind, target]:
            import_module("agent.runner.measure").reference_process(Path(job), kind, Path(target))
        case [job, folder] if not job.startswith("-"):
            import_module("agent.runner.decide").run_attempt(Path(job), Path(folder))
        case _:
            sys.stderr.write(f"usage:\n{__doc__}")
            return USAGE_EXIT_CODE
    return 0


def _write(report: ProbeReport) -> None:
    sys.stdout.write(report.model_dump_json() + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
