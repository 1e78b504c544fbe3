"""The view of an attempt's own user, which root alone can make: what it sees and may write."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from agent.processes.sandbox.limits import USERS
from tests.agent.embedded_agent import alive, eventually
from tests.needs import REPOSITORY

CODE = """
import json, os, sys
from functools import partial
from pathlib import Path
from agent.processes.sandbox import kernel, landlock, namespaces, view
user, rules = json.loads(sys.argv[1])
rules = [(Path(path), getattr(landlock, right)) for path, right in rules]
namespaces.enter(namespaces.Namespaces.DIRECT, None, partial(view.enter, rules, user))
kernel.drop_capabilities(user, [7])
def made(path):
    path.with_name("made").write_text("new")
    return path.with_name("made")
def tried(action):
    try:
        return str(action())
    except OSError as error:
        return type(error).__name__
found = {}
for way, path in json.loads(sys.argv[2]):
    path = Path(path)
    found[f"{way} {path.name}"] = tried(
        {
            "write": lambda: path.write_text("new"), "read": path.read_text,
            "owner": lambda: path.stat().st_uid,
            "add": lambda: path.open("a").write("more"), "mode": lambda: path.chmod(0o777),
            "replace": lambda: made(path).rename(path),
            "groups": os.getgroups,
            "list": lambda: sorted(os.listdir(path)), "link": lambda: path.readlink(),
        }[way]
    )
print(json.dumps(found))
"""
USER = 61999


@pytest.fixture
def state(tmp_path):
    """Return a state folder of root's, in a folder that is closed to others."""
    if os.getuid() != 0:
        pytest.skip("only root makes mounts for another user")
    home = tmp_path / "home"
    for folder in ("state/work/one", "state/references", "open", "outer"):
        (home / folder).mkdir(parents=True)
    home.chmod(0o700)
    (home / "link").symlink_to(home / "state")
    for name in ("secret", "model", "log", "references/kept", "work/one/job"):
        (home / "state" / name).write_text(name)
        (home / "state" / name).chmod(0o600)
    return home / "state"


def seen(rules: list[tuple[Path, str]], tried: list[tuple[str, Path]]) -> dict[str, str]:
    """Return what each try gave to the user of an attempt with these rules."""
    arguments = [json.dumps([USER, rules], default=str), json.dumps(tried, default=str)]
    ran = subprocess.run(
        [sys.executable, "-c", CODE, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_an_attempt_writes_into_its_folder_and_reads_what_it_is_given(state):
    own, log = state / "work/one", state / "log"
    rules = [(own, "WRITE"), (log, "APPEND"), (state / "model", "READ"), (state / "references", "READ")]
    tried = [
        ("write", own / "made"), ("owner", own / "made"), ("read", own / "job"), ("add", log),
        ("read", state / "model"), ("write", state / "model"), ("mode", state / "model"),
        ("read", state / "references/kept"), ("write", state / "references/kept"),
        ("read", state / "secret"), ("list", state), ("list", state.parent), ("write", state / "evil"),
        ("write", REPOSITORY / "evil"), ("write", state.parent / "open/evil"),
    ]  # fmt: skip
    found = seen(rules, tried)
    assert found == {
        "write made": "3", "owner made": str(USER), "read job": "work/one/job", "add log": "4",
        "read model": "model", "write model": "OSError", "mode model": "OSError",
        "read kept": "references/kept", "write kept": "OSError",
        "read secret": "FileNotFoundError", "list state": "['log', 'model', 'references', 'work']",
        "list home": "['state']", "write evil": "FileNotFoundError",
    }  # fmt: skip
    made = own / "made"
    assert (made.stat().st_uid, log.read_text()) == (0, "logmore"), "on the disk it is the agent's"
    assert [path.name for path in state.parent.iterdir() if path.name == "evil"] == []


def test_a_link_on_the_way_to_a_file_leads_there(state):
    link = state.parent / "link"
    found = seen([(link / "model", "READ")], [("read", link / "model"), ("read", state / "secret")])
    assert found == {"read model": "model", "read secret": "FileNotFoundError"}


def test_files_of_others_are_closed_by_their_modes_alone(state):
    """Without Landlock: a file of root's that nobody may read is not read by the attempt's user."""
    with tempfile.NamedTemporaryFile("w", prefix="farm-test-") as file:
        other = Path(shutil.copy(file.name, f"{file.name}-other"))
        other.chmod(0o600)
        found = seen([(state / "work/one", "WRITE")], [(way, other) for way in ("read", "mode", "write")])
        other.unlink()
    found = {name.split()[0] + " other": got for name, got in found.items()}
    assert found == {"read other": "PermissionError", "mode other": "OSError", "write other": "OSError"}


def test_a_file_of_its_folder_that_is_named_too_can_be_replaced(state):
    own = state / "work/one"
    found = seen([(own / "job", "READ"), (own, "WRITE")], [("replace", own / "job"), ("read", own / "job")])
    assert found == {"replace job": str(own / "job"), "read job": "new"}


def test_an_attempts_user_is_in_the_groups_of_its_devices_alone(state):
    assert seen([(state, "READ")], [("groups", state)]) == {"groups state": "[7]"}


def test_a_process_of_another_user_dies_with_the_one_that_started_it(state, tmp_path):
    """The kernel forgets whom it is to die with when a process changes its user."""
    folder = state / "work/one"
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from agent.processes.sandbox.boundary import boundary_for\n"
        "from agent.processes.sandbox.reach import Reach\nfrom agent.processes.sandbox.limits import USERS\n"
        "from agent.processes.supervisor import Launch, start\n"
        "folder = Path(sys.argv[1])\n(folder / 'tmp').mkdir()\ncommand = ['/bin/sleep', '600']\n"
        "boundary = boundary_for(Reach(command, {}, [], [folder]), folder, USERS)\n"
        "print(start(Launch(command, {}, folder, boundary=boundary)).pid, flush=True)\ntime.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        status = Path(f"/proc/{child}/status")
        if not USERS.first <= status.stat().st_uid <= USERS.last:
            pytest.skip("no user of its own here")
        parent.kill()
    try:
        eventually(lambda: not alive(child), "it ends", limit_s=10)
    finally:
        if alive(child):
            os.kill(child, signal.SIGKILL)
