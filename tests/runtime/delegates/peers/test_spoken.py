"""Native code's output is captured, and still arrives where it was written."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.needs import REPOSITORY

SCRIPT = """
import os, sys
from runtime.delegates.peers.litert_words import spoken
sys.stderr.write("before\\n")
with spoken() as heard:
    os.write(2, b"native\\n")
    print("python", file=sys.stderr)
    if len(sys.argv) > 1:
        os.abort()
os.write(2, b"after\\n")
print(repr(heard.text))
"""


def run(stderr, *arguments):
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        check=False,
    )


def test_words_are_heard_and_pass_through_a_pipe():
    done = run(subprocess.PIPE)
    assert done.stdout.strip() == repr("native\npython\n")
    assert done.stderr == "before\nnative\npython\nafter\n"


@pytest.mark.parametrize("mode", ["ab", "wb"])
def test_words_are_heard_and_stay_in_a_log(tmp_path, mode):
    with (tmp_path / "log").open(mode) as log:
        done = run(log)
    assert done.stdout.strip() == repr("native\npython\n")
    assert (tmp_path / "log").read_text() == "before\nnative\npython\nafter\n"


def test_the_last_words_of_a_process_that_aborts_are_in_its_log(tmp_path):
    with (tmp_path / "log").open("ab") as log:
        done = run(log, "abort")
    assert done.returncode < 0
    assert "native\n" in (tmp_path / "log").read_text()
