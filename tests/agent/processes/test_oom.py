"""The kernel's own count tells who was killed for want of memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.processes import cgroup, supervisor
from agent.processes.exit_reason import exit_reason
from agent.processes.left_files import LOG_FILE
from agent.processes.supervisor import Launch, Runner
from agent.wire.messages import ReasonCode
from tests import needs
from tests.faults import forms

HUNGRY = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from agent.processes import cgroup
before = cgroup.oom_kills()
import subprocess
eat = "hoard = []\\nwhile len(hoard) < 64: hoard.append(b'x' * (16 << 20))"
ended = subprocess.run([sys.executable, "-S", "-c", eat])
print(ended.returncode, cgroup.oom_kills() - before)
"""


def test_a_process_killed_for_want_of_memory_is_counted():
    if not forms.has_memory_groups():
        needs.absent("no control groups that limit memory")
    with forms.memory_group(128 << 20) as folder:
        command = [*forms.inside(folder), sys.executable, "-c", HUNGRY, str(needs.REPOSITORY)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    returncode, killed = map(int, done.stdout.split())
    assert returncode == -signal.SIGKILL
    assert killed >= 1


def test_a_process_killed_by_a_person_is_not_counted():
    before = cgroup.oom_kills()
    sleeper = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    sleeper.kill()
    assert sleeper.wait() == -signal.SIGKILL
    assert cgroup.oom_kills() == before


def test_a_process_offers_itself_unless_it_is_worse_off_already():
    code = "import sys; sys.path.insert(0, sys.argv[1])\n"
    code += "from agent.processes import cgroup; cgroup.raise_oom_score(); cgroup.raise_oom_score()\n"
    code += "print(open('/proc/self/oom_score_adj').read())"
    done = subprocess.run(
        [sys.executable, "-c", code, str(needs.REPOSITORY)], capture_output=True, check=True
    )
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert int(done.stdout) == max(own, cgroup.SCORE_ADJUSTMENT)


@pytest.mark.parametrize(
    ("oom_killed", "code"), [(True, ReasonCode.OUT_OF_MEMORY), (False, ReasonCode.RUNNER_KILLED)]
)
def test_a_kill_is_want_of_memory_where_the_kernel_says_so(oom_killed, code):
    reason = exit_reason(-signal.SIGKILL, "process 1 of 5", "", oom_killed=oom_killed)
    assert (reason.code, "smaller model" in reason.text) == (code, True)
    crashed = exit_reason(-signal.SIGSEGV, "process 1 of 5", "", oom_killed=oom_killed)
    assert crashed.code is ReasonCode.CRASH


def test_the_kernel_kills_a_runner_before_its_agent(tmp_path):
    command = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    runner = Runner.start("attempt-of-a-score", Launch(command, dict(os.environ), tmp_path))
    own = int(Path("/proc/self/oom_score_adj").read_text())
    score = int(Path(f"/proc/{runner.process.pid}/oom_score_adj").read_text())
    assert runner.reap() == set()
    assert score == max(own, cgroup.SCORE_ADJUSTMENT)


def test_a_process_has_the_address_space_that_the_operator_allows(tmp_path):
    command = [sys.executable, "-S", "-c", "import mmap; mmap.mmap(-1, 4 << 30)"]
    launch = Launch(command, dict(os.environ), tmp_path, memory_limit_bytes=1 << 30)
    assert supervisor.start(launch).wait(60) == 1
    assert "Cannot allocate memory" in (tmp_path / LOG_FILE).read_text()
