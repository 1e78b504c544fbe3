"""Runs tests on Oclgrind's OpenCL device, which interprets kernels and reports what no driver notices.

python -m tests.runtime.kernel_checker [--all | PYTEST ARGUMENTS]

Without arguments it runs tests of every operator that the GPU delegate takes, of each the first case and
every `STEP`th behind it, with `--all` every case, in both `CLASSES` of kernels, and writes
`benchmarks/results/kernel_checks.md`. The checker finds data races in local and global memory, accesses
outside buffers, and barriers that not all work-items reach. All values of a partition lie in one buffer: an
access outside a value but inside that buffer is for the guard zones to find (`tests/runtime/guard_zones.py`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from runtime.delegates.gpu.backends.opencl.library import KernelLibrary
from tests import needs
from tests.reports import write_report
from tests.tree import RESULTS, tree

SWITCH = "KERNEL_CHECKER"
"""The variable of the environment by which tests know that they run on the checker's device."""

STEPS = "KERNEL_CHECKER_STEP"
"""The variable that says which of a test's cases run: the first, and each so many behind the last one."""
STEP = 6
"""Of a run without `--all`. Less runs more cases: all those of `matmul` alone take more than ten minutes."""

# Oclgrind 21.10 makes 255 of the difference of two vectors of comparisons that clang has narrowed to bytes;
# without optimisation, and on drivers, it is 1.
ROUNDING = "tests/runtime/ops/elementwise/test_unary.py::test_rounding_matches_litert"
_WRONG_THERE = (f"{ROUNDING}[opencl:fp32-SIGN_int32]", f"{ROUNDING}[opencl:groups-SIGN_int32]")
OPS = "tests/runtime/ops"
EVERY = "exhaustive or not exhaustive"
CLASSES = {
    "units": (OPS, "-k", "opencl and not groups", "-m", EVERY),
    "work-groups": (OPS, "-k", "groups", "-m", EVERY),
    "work-groups on fp16": (f"{OPS}/test_halves.py", "-k", "each_family", "-m", EVERY),
}
"""How pytest chooses the cases with kernels of units, which CPU devices get, of work-groups, of GPUs, and of
those that find fp16 in memory."""

REPORT = needs.REPOSITORY / RESULTS / "kernel_checks.md"
_HEAD = """\
# Kernels under the checker

`make {target}` runs {chosen} on Oclgrind with `--data-races`, 48 KiB of
local memory and work-groups of at most 256 items: with kernels of units, which CPU devices get, of
work-groups, which GPUs get, and of work-groups that find fp16 in memory. One case is left out of the first
two, SIGN of int32, which Oclgrind gets wrong with optimisation and right without.
"""

# A device as NVIDIA's are to OpenCL, but for work-groups: of larger ones than 256 items AMD's have none.
# Without `restrict`: where a function with such pointers is inlined, clang leaves an intrinsic that Oclgrind
# does not know, and the kernel does not load. With bounds as wide as what they clamp: of vectors of integers
# Oclgrind 21.10 takes each lane's bound from where the lane would be, which is behind a scalar.
_DEFINES = "-Drestrict= -Dclamp(x,l,h)=clamp(x,(__typeof__(x))(l),(__typeof__(x))(h))"
_OPTIONS = (
    "--local-mem-size", "49152", "--max-wgsize", "256", "--data-races", "--build-options", _DEFINES,
)  # fmt: skip

_FINDING = re.compile(
    r"^(?P<what>\S.*?)(?: at (?P<space>\w+) memory address \w+)?\n"
    r"\tKernel: (?P<kernel>\S+)\n(?P<rest>(?:\t.*\n?)*)",
    re.MULTILINE,
)
_PLACE = re.compile(r"At line (\d+) \(column \d+\) of (\S+):")


@dataclass(frozen=True, order=True)
class Finding:
    """A kernel's fault, and its lines in files of `kernels/`."""

    kernel: str
    what: str
    places: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kernel}: {self.what} ({', '.join(self.places) or 'no line is known'})"


def wanted() -> bool:
    """Whether this process runs under the checker."""
    return os.environ.get(SWITCH) == "1"


def left_out(names: Sequence[str]) -> set[int]:
    """Return the places of the tests that this run leaves out: of each test's cases, those between steps."""
    step, seen, left = int(os.environ.get(STEPS, "1")), Counter[str](), set[int]()
    for place, name in enumerate(names):
        test = name.partition("[")[0]
        if seen[test] % step:
            left.add(place)
        seen[test] += 1
    return left


@contextmanager
def compiled_here() -> Iterator[None]:
    """Compile within this process: the checker's options do not reach processes that compile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KernelLibrary, "_compile", lambda *_: None)
        yield


def findings(report: str) -> Counter[Finding]:
    """Parse the checker's report into findings, each with its count."""
    found: Counter[Finding] = Counter()
    for match in _FINDING.finditer(report):
        what = f"{match['what']} in {match['space']} memory" if match["space"] else match["what"]
        places = {f"{file}:{line}" for line, file in _PLACE.findall(match["rest"])}
        found[Finding(match["kernel"], what, tuple(sorted(places)))] += 1
    return found


def checked(*arguments: str, step: int = 1) -> tuple[int, str, str]:
    """Run pytest under the checker: its exit code, what it said, and the checker's report."""
    # Oclgrind empties a log file whenever a context is made. On the standard error output all reports are
    # kept, as long as pytest leaves that alone.
    left_out = [f"--deselect={test}" for test in _WRONG_THERE]
    pytest_run = (sys.executable, "-m", "pytest", "-n0", "--capture=sys", *left_out, *arguments)
    done = subprocess.run(
        [needs.oclgrind(), *_OPTIONS, *pytest_run],
        env=os.environ | {SWITCH: "1", STEPS: str(step)},
        cwd=needs.REPOSITORY,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def main(arguments: list[str]) -> int:
    """Print what pytest says, then every distinct finding. 0 where all tests pass and nothing was found.

    Without arguments, or with `--all`, all classes of kernels are checked and the report is written.
    """
    try:
        if arguments in ([], ["--all"]):
            return _each_class(1 if arguments else STEP)
        return _run(*arguments)[0]
    except pytest.skip.Exception as reason:
        sys.stderr.write(f"{reason}\n")
        return 2


def cases(listed: Path) -> Counter[str]:
    """Return how many cases of each directory, or file, of `tests/runtime/ops` ran, from pytest's XML."""
    if not listed.exists():
        return Counter()
    ran = [case for case in ElementTree.parse(listed).iter("testcase") if case.find("skipped") is None]
    places = [case.attrib["classname"].removeprefix("tests.runtime.ops.").partition(".")[0] for case in ran]
    return Counter(f"{place}.py" if place.startswith("test_") else place for place in places)


def page(ran: Mapping[str, Counter[str]], found: Mapping[str, Counter[Finding]], step: int = 1) -> str:
    """Return the report in Markdown: the cases by directory and class of kernels, and all findings."""
    target, chosen = "test-kernels-all", "every operator case"
    if step > 1:
        target, chosen = "test-kernels", f"each operator test's first case, and one in {step} behind it,"
    places = sorted({place for counts in ran.values() for place in counts})
    lines = [
        _HEAD.format(target=target, chosen=chosen),
        f"| directory or file of `{OPS}` | {' | '.join(f'{name}: cases' for name in ran)} |",
        f"|---|{'---:|' * len(ran)}",
        *(f"| `{place}` | {' | '.join(str(counts[place]) for counts in ran.values())} |" for place in places),
        "",
        *(f"Findings in kernels of {name}: {len(of)}." for name, of in found.items()),
        *(f"- {finding}, {times} times" for of in found.values() for finding, times in sorted(of.items())),
    ]
    return "\n".join(lines) + "\n"


def _each_class(step: int) -> int:
    """Check every operator in each class, and write the report."""
    began = tree()
    codes: list[int] = []
    ran: dict[str, Counter[str]] = {}
    found: dict[str, Counter[Finding]] = {}
    with tempfile.TemporaryDirectory(prefix="kernel-checks-") as folder:
        for name, chosen in CLASSES.items():
            listed = Path(folder) / name
            code, found[name] = _run(*chosen, f"--junitxml={listed}", step=step)
            codes.append(code)
            ran[name] = cases(listed)
    counts = {"cases": sum(of.total() for of in ran.values()), "findings": sum(map(len, found.values()))}
    write_report(REPORT, page(ran, found, step), began, max(codes), counts)
    return max(codes)


def _run(*arguments: str, step: int = 1) -> tuple[int, Counter[Finding]]:
    code, said, report = checked(*arguments, step=step)
    sys.stdout.write(said)
    found = findings(report)
    for finding, times in sorted(found.items()):
        sys.stdout.write(f"{finding}, {times} times\n")
    sys.stdout.write(f"kernel checker: {len(found)} findings\n")
    if code and not found:
        sys.stderr.write(report)
    return code or int(bool(found)), found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
