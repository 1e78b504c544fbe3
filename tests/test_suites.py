"""Suites are run in turn, and one that passed on this very tree is not run again."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests import suites
from tests.needs import REPOSITORY, absent
from tests.suites import Outcome, Suite
from tests.tree import Tree


def shell(name, script, *required):
    return Suite(name, ("sh", "-c", script), required)


def no_tool():
    absent("no tool of that kind")


def no_tool_anywhere():
    pytest.skip("no such tool, wherever it is")


FAKE = (
    shell("well", "echo ran >> well.runs; echo; echo '== 3 passed in 0.1s =='"),
    shell("ill", "echo why; echo 2 failed >&2; echo 'make: *** [Makefile:1: ill] Error 1'; exit 2"),
    shell("lacking", "touch lacking.runs", no_tool),
    shell("lacking-anywhere", "touch lacking.runs", no_tool_anywhere),
)
"""Suite by what becomes of it."""


@pytest.fixture
def checkout(tmp_path):
    """Make a tree that git knows; the files that the fakes leave in it are ignored."""
    (tmp_path / "source.py").write_text("1")
    (tmp_path / ".gitignore").write_text(".suites/\n*.runs\n")
    for command in (("init", "--quiet"), ("add", "--all")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


@pytest.fixture
def run(checkout, monkeypatch):
    monkeypatch.delenv("CI", raising=False)

    def run(*arguments, chosen=FAKE):
        return suites.main(arguments, chosen, checkout / ".suites")

    return run


def runs(checkout):
    return len((checkout / "well.runs").read_text().split())


def state(checkout):
    return json.loads((checkout / ".suites/state.json").read_text())


def test_every_suite_runs_and_the_table_says_how_it_ended(run, checkout, capsys):
    assert run() == 1
    printed = capsys.readouterr().out
    assert "  | 2 failed" in printed
    heading, *rows, summed = printed.splitlines()[-6:]
    assert heading.split() == ["suite", "status", "wall", "last", "line"]
    assert [re.split(r"  +", row) for row in rows] == [
        ["well", "passed", "0:00", "3 passed in 0.1s"],
        ["ill", "failed", "0:00", "2 failed"],
        ["lacking", "missing", "no tool of that kind"],
        ["lacking-anywhere", "missing", "no such tool, wherever it is"],
    ]
    assert summed == "4 suites on a tree that git does not know: 1 passed, 1 failed, 2 missing"
    assert not (checkout / "lacking.runs").exists()
    assert (checkout / ".suites/ill.log").read_text().startswith("why\n2 failed\n")
    kept = state(checkout)["well"]
    assert kept["status"] == "passed"
    assert kept["summary"] == "3 passed in 0.1s"
    assert kept["seconds"] > 0
    assert len(kept["content"]) == 64


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_a_missing_tool_is_no_failure_but_where_nothing_may_be_missing(run, checkout, monkeypatch, ci, code):
    monkeypatch.setenv("CI", ci)
    assert run("--only", "well", "lacking", "lacking-anywhere") == code
    assert state(checkout)["lacking-anywhere"]["status"] == "missing"
    assert "no tool of that kind" in state(checkout)["lacking"]["summary"]


# What happens between two runs; how often the suite that passed has then run.
BETWEEN = {
    "nothing": (lambda root: None, (), 1),
    "a source changes": (lambda root: (root / "source.py").write_text("2"), (), 2),
    "a report is written": (lambda root: write(root / "benchmarks/results/soak.md"), (), 1),
    "all again": (lambda root: None, ("--again",), 2),
    "the state is damaged": (lambda root: write(root / ".suites/state.json"), (), 2),
    "git is gone": (lambda root: (root / ".git").rename(root / "was.runs"), (), 2),
}


def write(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[3")


@pytest.mark.parametrize(("happens", "arguments", "times"), BETWEEN.values(), ids=BETWEEN)
def test_what_passed_on_this_tree_is_not_run_again(run, checkout, happens, arguments, times):
    run()
    happens(checkout)
    assert run(*arguments) == 1
    assert runs(checkout) == times


def test_what_failed_is_run_again(run, checkout):
    run(chosen=FAKE[1:2])
    mended = shell("ill", "echo mended")
    assert run(chosen=[mended]) == 0
    assert state(checkout)["ill"]["summary"] == "mended"


def test_a_tree_that_changes_meanwhile_is_not_the_one_that_passed(run, checkout):
    changing = shell("changing", "echo 2 > source.py; echo ran >> well.runs; echo all passed")
    assert run(chosen=[changing]) == 0
    assert state(checkout)["changing"]["summary"] == "all passed (the tree changed meanwhile)"
    run(chosen=[changing])
    assert runs(checkout) == 2


def test_a_second_run_is_kept_out(run, checkout, capsys):
    (checkout / ".suites").mkdir()
    with (checkout / ".suites/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run() == 2
    assert "run already" in capsys.readouterr().err
    assert not (checkout / "well.runs").exists()


INTERRUPTED = """\
import sys
from pathlib import Path
from tests.suites import Suite, main
script = "trap 'echo cleaned; exit 3' INT; touch at.runs; while :; do sleep 0.05; done"
slow = Suite("slow", ("sh", "-c", script))
sys.exit(main([], [slow, Suite("next", ("touch", "next.runs"))], Path(sys.argv[1]) / ".suites"))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_suite_that_runs_and_all_goes_on_from_there(run, checkout, number):
    running = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(checkout)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )
    while not (checkout / "at.runs").exists():
        assert running.poll() is None
        time.sleep(0.02)
    running.send_signal(number)
    printed = running.communicate(timeout=60)[0].splitlines()
    assert running.returncode == 128 + number
    assert re.split(r"  +", printed[-3])[:2] == ["slow", "interrupted"]
    assert printed[-2].split() == ["next", "not", "run"]
    assert "cleaned" in (checkout / ".suites/slow.log").read_text()
    assert not (checkout / "next.runs").exists()
    assert run(chosen=[shell("slow", "echo done")]) == 0


def test_the_last_line_is_the_suites_own():
    assert (
        suites.summary_of(["=== 9 passed in 3s ===", "", "make[1]: *** [test] Error 2"]) == "9 passed in 3s"
    )
    assert suites.summary_of([]) == "nothing was printed"


def test_a_suite_that_was_left_out_is_in_the_table():
    text = suites.table({"ill": Outcome("failed", "why", 61.0)}, FAKE[:2], Tree("0" * 40))
    assert "well   not run" in text
    assert "1:01" in text
    assert text.endswith("2 suites on tree `000000000000`, not modified: 1 not run, 1 failed")


@pytest.mark.parametrize("ci", ["true", ""])
def test_a_suite_that_is_asked_for_by_name_and_cannot_run_fails_in_one_line(run, monkeypatch, capsys, ci):
    monkeypatch.setenv("CI", ci)
    assert run("--needs", "well") == 0
    assert capsys.readouterr() == ("", "")
    assert run("--needs", "lacking") == 1
    said = capsys.readouterr().err
    assert said.startswith("make lacking cannot run: no tool of that kind")
    assert said.count("\n") == 1


def test_every_target_whose_suite_needs_something_asks_for_it_first():
    makefile = (REPOSITORY / "Makefile").read_text()
    for suite in suites.SUITES:
        asks = f"\t@$(BIN)/python -m tests.suites --needs {suite.name}\n"
        recipe = makefile.partition(f"\n{suite.name}:\n")[2].partition("\n\n")[0]
        assert (asks in recipe) == bool(suite.needs), suite.name


def test_every_suite_is_a_target_and_every_target_that_tests_is_a_suite():
    text = (REPOSITORY / "Makefile").read_text()
    targets = set(re.findall(r"^([\w-]+):(?! WORKERS| export)", text, re.MULTILINE))
    named = {suite.name for suite in suites.SUITES}
    assert named <= targets
    testing = {name for name in targets if name.startswith("test-")} | {"test", "mutate", "soak", "fuzz"}
    assert testing - {"test-all"} == named
