"""Runs tests on Oclgrind's OpenCL device, which interprets kernels and reports what no driver notices.

python -m tests.runtime.kernel_checker [PYTEST ARGUMENTS]

Without arguments these are `tests/runtime/ops -k opencl`: every case of every operator that the GPU delegate
takes. The checker finds data races in local and global memory, accesses outside buffers, and barriers that
not all work-items reach. All values of a partition lie in one buffer: an access outside a value but inside
that buffer is for the guard zones to find (`tests/runtime/guard_zones.py`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from runtime.delegates.gpu.backends.opencl.library import KernelLibrary
from tests import needs

SWITCH = "KERNEL_CHECKER"
"""The variable of the environment by which tests know that they run on the checker's device."""

# Oclgrind 21.10 makes 255 of the difference of two vectors of comparisons that clang has narrowed to bytes;
# without optimisation, and on drivers, it is 1.
_ROUNDING = "tests/runtime/ops/elementwise/test_rounding.py::test_rounding_matches_litert"
_WRONG_THERE = (f"{_ROUNDING}[opencl:fp32-SIGN_int32]", f"{_ROUNDING}[opencl:groups-SIGN_int32]")
EVERYTHING = ("tests/runtime/ops", "-k", "opencl")

# Without `restrict`: where a function with such pointers is inlined, clang leaves an intrinsic that Oclgrind
# does not know, and the kernel does not load.
_OPTIONS = ("--data-races", "--build-options", "-Drestrict=")

_FINDING = re.compile(
    r"^(?P<what>\S.*?)(?: at (?P<space>\w+) memory address \w+)?\n"
    r"\tKernel: (?P<kernel>\S+)\n(?P<rest>(?:\t.*\n?)*)",
    re.MULTILINE,
)
_PLACE = re.compile(r"At line (\d+) \(column \d+\) of (\S+):")


@dataclass(frozen=True, order=True)
class Finding:
    """What a kernel did wrong, and in which lines of which files of `kernels/`."""

    kernel: str
    what: str
    places: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kernel}: {self.what} ({', '.join(self.places) or 'no line is known'})"


def wanted() -> bool:
    """Whether this process runs under the checker."""
    return os.environ.get(SWITCH) == "1"


@contextmanager
def compiled_here() -> Iterator[None]:
    """A block in which this process compiles: the checker's options do not reach processes that compile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KernelLibrary, "_compile", lambda *_: None)
        yield


def findings(report: str) -> Counter[Finding]:
    """What the checker's report says, each finding with how often it was made."""
    found: Counter[Finding] = Counter()
    for match in _FINDING.finditer(report):
        what = f"{match['what']} in {match['space']} memory" if match["space"] else match["what"]
        places = {f"{file}:{line}" for line, file in _PLACE.findall(match["rest"])}
        found[Finding(match["kernel"], what, tuple(sorted(places)))] += 1
    return found


def checked(*arguments: str) -> tuple[int, str, str]:
    """Run pytest under the checker: its exit code, what it said, and the checker's report."""
    # Oclgrind empties a log file whenever a context is made. On the standard error output all reports are
    # kept, as long as pytest leaves that alone.
    left_out = [f"--deselect={test}" for test in _WRONG_THERE]
    pytest_run = (sys.executable, "-m", "pytest", "-n0", "--capture=sys", *left_out, *arguments)
    done = subprocess.run(
        [needs.oclgrind(), *_OPTIONS, *pytest_run],
        env=os.environ | {SWITCH: "1"},
        cwd=needs.REPOSITORY,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def main(arguments: list[str]) -> int:
    """Print what pytest says, then every distinct finding. 0 where all tests pass and nothing was found."""
    try:
        code, said, report = checked(*(arguments or EVERYTHING))
    except pytest.skip.Exception as reason:
        sys.stderr.write(f"{reason}\n")
        return 2
    sys.stdout.write(said)
    found = findings(report)
    for finding, times in sorted(found.items()):
        sys.stdout.write(f"{finding}, {times} times\n")
    sys.stdout.write(f"kernel checker: {len(found)} findings\n")
    if code and not found:
        sys.stderr.write(report)
    return code or int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
