"""A report names the tree of its run and how the run ended, whoever writes it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.needs import REPOSITORY
from tests.reports import write_report
from tests.tree import RESULTS, Tree, tree

WRITERS = {
    "aa": "benchmarks/campaign.py",
    "ab_sleep": "benchmarks/ab_sleep.py",
    "attack": "tests/attack/conftest.py",
    "benchmark_model": "benchmarks/benchmark_model.py",
    "channel_counts": "benchmarks/channel_counts.py",
    "cpu_runtime": "benchmarks/cpu_runtime.py",
    "dishonesty": "tests/agent/runner/test_honesty.py",
    "faults": "tests/faults/conftest.py",
    "first_contact": "benchmarks/first_contact.py",
    "gpu_static": "benchmarks/gpu_static.py",
    "int8": "benchmarks/campaign.py",
    "judge_power": "benchmarks/judge_power.py",
    "kernel_checks": "tests/runtime/kernel_checker.py",
    "kernels": "benchmarks/kernels.py",
    "kernels_avx2": "benchmarks/kernels.py",
    "model_kinds": "benchmarks/campaign.py",
    "precisions": "benchmarks/campaign.py",
    "precisions_avx2": "benchmarks/campaign.py",
    "mutants": "tests/mutants/__main__.py",
    "plain_loop": "benchmarks/plain_loop.py",
    "release_history": "benchmarks/release_history.py",
    "runtime_vs_peers": "benchmarks/campaign.py",
    "sandbox": "benchmarks/sandbox.py",
    "sizes": "benchmarks/campaign.py",
    "soak": "tests/faults/soak.py",
    "statistics": "benchmarks/statistics.py",
    "tune_marks": "benchmarks/tune_marks.py",
    "version_axis": "benchmarks/version_axis.py",
    "webgpu_peer": "benchmarks/webgpu_peer.py",
    "zoo_vs_xnnpack": "benchmarks/campaign.py",
}
"""Report in Markdown of `benchmarks/results/` -> module that writes it."""

COMMIT = "0123456789abcdef"
CASES = {
    "passed": (Tree(COMMIT), 0, {}, "Run on tree `0123456789ab`, not modified; exit status 0."),
    "failed": (
        Tree(COMMIT, modified=True),
        1,
        {"passed": 72, "error": 25},
        "Run on tree `0123456789ab`, modified; exit status 1: 72 passed, 25 error.",
    ),
    "cut_short": (Tree(None), None, {}, "Run on a tree that git does not know; not at its end."),
}


@pytest.mark.parametrize(("of", "status", "counts", "line"), CASES.values(), ids=CASES)
def test_the_line_below_the_title_names_tree_and_end(tmp_path, of, status, counts, line):
    path = tmp_path / "results" / "report.md"
    write_report(path, "# Title\n\nText.\n", of, status, counts)
    assert path.read_text() == f"# Title\n\n{line}\n\nText.\n"


SESSION = """\
import pytest
from tests.reports import SessionReport

REPORT = SessionReport.wanted("SOME_REPORT")


def pytest_sessionfinish(session, exitstatus):
    if REPORT is not None:
        REPORT.write("# Title\\n", session, exitstatus)
"""
TESTS = """\
import pytest

@pytest.fixture
def broken():
    raise ValueError

def test_well(): pass
def test_ill(): raise ValueError
def test_broken(broken): pass
@pytest.mark.skip
def test_left_out(): pass
"""


@pytest.mark.parametrize(
    ("chosen", "end"),
    [
        ((), "exit status 1: 1 passed, 1 failed, 1 error, 1 skipped"),
        (("-k", "well"), "exit status 0: 1 passed"),
    ],
    ids=["all", "one"],
)
def test_a_session_of_pytest_counts_its_tests(tmp_path, chosen, end):
    (tmp_path / "conftest.py").write_text(SESSION)
    (tmp_path / "test_some.py").write_text(TESTS)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), *chosen],
        cwd=tmp_path,
        env={**os.environ, "SOME_REPORT": "report.md", "PYTHONPATH": str(REPOSITORY)},
        check=False,
        capture_output=True,
    )
    assert (tmp_path / "report.md").read_text() == f"# Title\n\nRun on {tree()}; {end}.\n"


def test_every_report_has_a_writer_that_names_its_tree():
    assert {path.stem for path in (REPOSITORY / RESULTS).glob("*.md")} <= WRITERS.keys()
    without = [name for name in WRITERS.values() if not names_its_tree((REPOSITORY / name).read_text())]
    assert without == []


def names_its_tree(source: str) -> bool:
    return "write_report(" in source or "SessionReport.wanted(" in source
