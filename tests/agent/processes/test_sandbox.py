"""A hostile runner reaches nothing but its own attempt. Each way out works where the sandbox is off."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent.processes.sandbox import landlock
from agent.processes.sandbox.boundary import READ_VARIABLE, SWITCH_VARIABLE, WRITE_VARIABLE, SandboxSettings
from agent.processes.sandbox.limits import USERS, USERS_VARIABLE, Users
from agent.processes.sandbox.namespaces import Namespaces
from agent.processes.sandbox.survey import survey
from agent.wire.environment import EXTRA_VARIABLE
from tests.agent.embedded_agent import EmbeddedAgent, job, put_model
from tests.agent.processes.hostile_runners import TARGETS_VARIABLE
from tests.needs import REPOSITORY, absent

SCRIPT = str(Path(__file__).with_name("hostile_runners.py"))
BECOME_ORDINARY = (
    'exec setpriv --reuid=1000 --regid=1000 --clear-groups --inh-caps=+chown --ambient-caps=+chown "$@"'
)
"""An ordinary user with a capability that every program inherits, as containers hand them out."""

WITHOUT_NAMESPACES = (
    "unshare", "--user", "--map-root-user", "sh", "-c",
    'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-sys_admin "$@"', "sh",
)  # fmt: skip
"""Root in a container: it may make no namespace, neither by a capability nor by its user."""

READS = ("credentials", "journal", "other_attempt", "home", "other_file", "agent_environment", "agent_memory")
WRITES = ("state", "store", "other_folder", "interpreter", "references", "own_references")
BY_NUMBER_OR_PATH = (
    "empty", "empty_the_log", "write_into_the_log", "modes", "modes_by_descriptor", "times", "touch", "owner",
    "attributes",
    "limits_of_the_agent", "priority_of_the_agent", "scheduler_of_the_agent", "cpus_of_the_agent",
    "memory_by_key", "semaphores_by_key", "messages_by_key",
)  # fmt: skip
OTHER_WAYS = ("signal_agent", "signal_other", "huge_file")
CONNECTIONS = ("tcp", "udp", "unix", "unix_datagram", "abstract")
NEEDS = (
    "own_folder", "own_temporary", "own_shared_memory",
    "null", "own_process", "own_pair", "model",
)  # fmt: skip


def ordinary() -> tuple[str, ...]:
    """Return a prefix that makes an ordinary user of root, who finds our Python even in root's home."""
    python = Path(sys.base_prefix).resolve()
    closed = next((folder for folder in reversed(python.parents) if not folder.stat().st_mode & 1), None)
    if closed is None:
        return ("sh", "-c", BECOME_ORDINARY, "sh")
    opened = (
        f"mount --bind {python} /mnt && mount -t tmpfs -o mode=755 none {closed} && mkdir -p {python}"
        f" && mount --bind /mnt {python}"
    )
    return ("unshare", "--mount", "sh", "-c", f"{opened} && {BECOME_ORDINARY}", "sh")


def usable(inside: tuple[str, ...]) -> bool:
    """Whether our Python can start itself inside this command here."""
    again = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', '']).returncode)"
    if not all(map(shutil.which, ("unshare", "setpriv", inside[0]))):
        return False
    return (
        subprocess.run([*inside, sys.executable, "-c", again], capture_output=True, check=False).returncode
        == 0
    )


@pytest.fixture(scope="module")
def outside() -> Iterator[dict]:
    """Sockets of others on this host, by what a runner is told of them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="farm-test-")))
        folder.chmod(0o755)
        told: dict = {"pid": os.getpid()}
        for name, family, kind, address in (
            ("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            ("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            ("unix", socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "stream")),
            ("unix_datagram", socket.AF_UNIX, socket.SOCK_DGRAM, str(folder / "datagram")),
            ("abstract", socket.AF_UNIX, socket.SOCK_STREAM, f"\0farm-test-{os.getpid()}"),
        ):
            one = stack.enter_context(socket.socket(family, kind))
            one.bind(address)
            if kind == socket.SOCK_STREAM:
                one.listen()
            if name.startswith("unix"):
                Path(address).chmod(0o777)
            told[name] = one.getsockname()
        told["abstract"] = told["abstract"][1:].decode()
        yield told


def attacked(
    probed: list[str], tiny: Path, outside: dict, *, on: bool, inside: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return the facts of a hostile runner that tried everything. The agent runs `inside` a command."""
    user = 1000 if inside == ordinary() else os.getuid()
    with tempfile.TemporaryDirectory(prefix="farm-test-") as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        home, state, other = folder / "home", folder / "agent", folder / "other"
        for made in (home, state, other):
            made.mkdir()
        (state / "credentials.json").write_text("secret")
        (state / "runs.log").touch()
        (home / ".netrc").write_text("secret")
        (other / "file").write_text("secret")
        setuid = Path(shutil.copy(shutil.which("id") or absent("no program id"), folder / "id"))
        stored = put_model(folder / "store", tiny)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, user or -1)
        os.chown(setuid, os.getuid(), -1)
        setuid.chmod(0o4755)
        reads = {
            "credentials": state / "credentials.json",
            "journal": state / "journal.db",
            "other_attempt": state / "work/other/job.json",
            "home": home / ".netrc",
            "other_file": other / "file",
            "shadow": "/etc/shadow",
        }
        writes = {
            "state": state / "evil",
            "store": folder / "store/evil",
            "other_folder": other / "evil",
            "interpreter": Path(sys.prefix) / "evil.pth",
            "tmp": f"/tmp/farm-test-evil-{folder.name}",
            "kernel": "/proc/sys/kernel/domainname",
            "references": state / "references/others/evil",
        }
        targets = {
            **outside,
            "kept": str(state / "credentials.json"),
            "key": os.getpid(),
            "setuid": str(setuid),
            "read": {key: str(path) for key, path in reads.items()},
            "write": {key: str(path) for key, path in writes.items()},
        }
        patch.setenv("HOME", str(home))
        patch.setenv(TARGETS_VARIABLE, json.dumps(targets))
        patch.setenv(EXTRA_VARIABLE, TARGETS_VARIABLE)
        shared = list(Path("/dev/shm").glob("farm-*"))
        agent = EmbeddedAgent(
            folder,
            [sys.executable, SCRIPT, "everything"],
            probe_command=probed_for_all(probed, folder),
            sandbox={"on": on, "read": [str(setuid)]},
            inside=inside,
        )
        try:
            for made in (state / "references", state / "references/others"):
                made.mkdir(exist_ok=True)
                os.chown(made, user, -1)
            (state / "work/other").mkdir(parents=True)
            (state / "work/other/job.json").write_text("secret")
            os.chown(state / "work", user, -1)
            result = agent.run(job(stored))
        finally:
            agent.close()
        assert result.reason is None, result.log_tail
        left = [path for path in Path("/dev/shm").glob("farm-*") if path not in shared]
        found = {**result.facts, "left_in_tmp": str(Path(writes["tmp"]).exists()), "left_in_shm": str(left)}
        for path in left:
            path.unlink()
        for path in (writes["tmp"], writes["interpreter"]):
            Path(path).unlink(missing_ok=True)
        return found


def probed_for_all(probed: list[str], folder: Path) -> list[str]:
    """Copy the answer of the probe to a place where every user can read it."""
    copy = Path(shutil.copy(probed[-1], folder / "probe.json"))
    copy.chmod(0o644)
    return [*probed[:-1], str(copy)]


@pytest.fixture(scope="module")
def free(probed, tiny, outside) -> dict[str, str]:
    """Return the facts of a runner of this user without the sandbox."""
    return attacked(probed, tiny, outside, on=False)


@pytest.fixture(scope="module", params=["this user", "an ordinary user", "no namespaces"])
def caught(request, probed, tiny, outside) -> dict[str, str]:
    """Return the facts of a runner in the sandbox, of an agent with these rights."""
    if landlock.supported_abi() == 0:
        absent("no Landlock in this kernel")
    prefixes = {"this user": (), "an ordinary user": ordinary(), "no namespaces": WITHOUT_NAMESPACES}
    inside = prefixes[request.param]
    if inside and not usable(inside):
        pytest.skip(f"this user cannot run an agent as {request.param}")
    return attacked(probed, tiny, outside, on=True, inside=inside)


@pytest.mark.parametrize("way", [*READS, *WRITES, *CONNECTIONS, *BY_NUMBER_OR_PATH, *OTHER_WAYS])
def test_a_way_out_works_without_the_sandbox_and_is_refused_by_it(free, caught, way):
    assert free[way].startswith("done"), free[way]
    if landlock.supported_abi() < landlock.SCOPED_ABI and way.startswith("signal"):
        pytest.skip("this kernel's Landlock does not keep signals inside")
    assert caught[way].startswith("refused"), caught[way]


def test_no_more_processes_than_allowed(free, caught):
    assert free["fork_bomb"].startswith("done")
    if "sandbox_without" in caught and "limit on processes" in caught["sandbox_without"]:
        pytest.skip(caught["sandbox_without"])
    assert caught["fork_bomb"].startswith("refused"), caught["fork_bomb"]


def test_its_network_and_its_mounts_are_nobody_elses(free, caught):
    if "namespaces" not in caught["sandbox"]:
        pytest.skip(caught["sandbox"])
    assert [word.partition(":")[0] for word in caught["namespaces"].split()[1:]] == ["net", "mnt", "ipc"]
    assert set(caught["namespaces"].split()) & set(free["namespaces"].split()) == {"done:"}


def test_no_user_namespace_and_so_no_capabilities_in_one(caught):
    assert caught["user_namespace"].startswith("refused")


def test_no_capability_and_no_setuid_program_gives_rights(caught):
    assert {int(word, 16) for word in caught["capabilities"].split()} == {0}
    assert caught["setuid_program"] == caught["user"]


INHERITING = """
import os, sys
from agent.processes.sandbox import kernel
assert kernel.capabilities()["CapAmb:"]
kernel.drop_capabilities()
os.execv(sys.executable, [sys.executable, "-c", "print(open('/proc/self/status').read())"])
"""


def test_a_capability_that_every_program_inherits_is_dropped():
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root hands out capabilities, by setpriv")
    inheriting = ("setpriv", "--securebits=+noroot", "--inh-caps=+chown", "--ambient-caps=+chown")
    command = [*inheriting, sys.executable, "-c", INHERITING]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    kept = [line.split()[1] for line in ran.stdout.splitlines() if re.match(r"Cap(Inh|Prm|Eff|Amb):", line)]
    assert (len(kept), {int(one, 16) for one in kept}) == (4, {0})


OPENING = """
import sys
from pathlib import Path
from agent.processes.sandbox import namespaces
namespaces.enter(namespaces.Namespaces.DIRECT, Path("/usr"))
open(sys.argv[1], "r+b", buffering=0)
"""


@pytest.mark.parametrize("path", ["/proc/sysrq-trigger", "/proc/irq/default_smp_affinity"])
def test_a_runners_mounts_alone_close_what_changes_the_kernel(path):
    if survey().namespaces is not Namespaces.DIRECT or not Path(path).exists():
        pytest.skip(f"this user makes no mounts of /proc, or this kernel has no {path}")
    command = [sys.executable, "-c", OPENING, path]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert f"Read-only file system: '{path}'" in ran.stderr


def test_an_attempt_of_root_has_a_user_and_a_group_of_its_own(caught, free):
    assert free["user"] == f"done: {os.getuid()}"
    if "(direct)" in caught["sandbox"]:
        assert USERS.first <= int(caught["user"].removeprefix("done: ")) <= USERS.last
        assert "user: each attempt's own" in caught["sandbox"]
    else:
        assert caught["user"] in ("done: 1000", f"done: {os.getuid()}")
        assert "user: the agent's" in caught["sandbox"]


def test_passwords_of_the_host_and_settings_of_the_kernel_are_closed(caught):
    assert caught["shadow"].startswith("refused")
    assert caught["kernel"].startswith("refused")
    assert caught["kernel_keys"].startswith("refused")


def test_root_in_the_sandbox_lists_no_process_of_others(caught):
    if "(direct)" not in caught["sandbox"]:
        pytest.skip("a /proc of its own needs root")
    assert caught["first_process"].startswith("refused")


def test_what_it_writes_into_tmp_is_seen_by_nobody(caught):
    assert caught["left_in_tmp"] == "False"


def test_what_it_writes_into_shared_memory_is_seen_by_nobody(caught):
    assert caught["left_in_shm"] == "[]"


def test_its_mounts_stay_its_own():
    """Mounts of a runner do not appear on a host that shares its mounts, as systemd has it."""
    shared = ("unshare", "--mount", "--propagation", "shared")
    if not usable(shared):
        pytest.skip("this user has no mounts of its own to share")
    code = (
        "import os, pathlib, sys\nfrom agent.processes.sandbox import namespaces\n"
        "table = pathlib.Path('/proc/self/mounts')\nbefore = table.read_text()\nchild = os.fork()\n"
        "if child == 0:\n    namespaces.enter(namespaces.Namespaces.DIRECT, None)\n    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\nsys.exit(table.read_text() != before)"
    )
    assert subprocess.run([*shared, sys.executable, "-c", code], check=False, cwd=REPOSITORY).returncode == 0


@pytest.mark.parametrize("need", NEEDS)
def test_a_runner_still_has_what_it_needs(caught, need):
    if need == "own_shared_memory" and "temporary" in caught.get("sandbox_without", ""):
        assert caught[need].startswith("refused"), "it would be everybody's"
        return
    assert caught[need].startswith("done"), caught[need]


def test_the_result_says_what_the_sandbox_was(free, caught):
    assert "Landlock" in caught["sandbox"]
    assert free["sandbox"].startswith("off (FARM_RUNNER_SANDBOX=off)")


def test_a_runner_dumps_no_core_even_where_its_agent_may(start_agent, stored):
    before = resource.getrlimit(resource.RLIMIT_CORE)
    if before[1] == 0:
        pytest.skip("this process may dump no core either")
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        agent = start_agent(runner=[sys.executable, SCRIPT, "core"])
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
    assert agent.run(job(stored)).facts["core"] == "(0, 0)"


def test_a_runner_cannot_deny_what_its_agent_knows(start_agent, stored):
    agent = start_agent(runner=[sys.executable, SCRIPT, "liar"], sandbox={"on": False})
    facts = agent.run(job(stored)).facts
    assert facts["sandbox"].startswith("off")
    assert facts["hostname"] != "elsewhere"
    assert facts["mine"] == "kept"


def test_settings_that_are_not_understood_are_named():
    assert SandboxSettings.from_environment({}).on
    assert not SandboxSettings.from_environment({SWITCH_VARIABLE: "off"}).on
    with pytest.raises(ValueError, match="FARM_RUNNER_SANDBOX: 'no' is neither on nor off"):
        SandboxSettings.from_environment({SWITCH_VARIABLE: "no"})
    with pytest.raises(ValueError, match="FARM_RUNNER_WRITE: 'caches' is not the absolute path"):
        SandboxSettings.from_environment({WRITE_VARIABLE: "/var/tmp/a:caches"})
    with pytest.raises(ValueError, match="FARM_RUNNER_READ: '/' is not"):
        SandboxSettings.from_environment({READ_VARIABLE: "/"})
    assert SandboxSettings.from_environment({USERS_VARIABLE: "70000-70099"}).users == Users(70000, 70099)
    assert SandboxSettings.from_environment({USERS_VARIABLE: "off"}).users is None
    for wrong in ("0-9", "9-1", "root"):
        with pytest.raises(ValueError, match=f"FARM_RUNNER_USERS: '{wrong}' is neither off nor a range"):
            SandboxSettings.from_environment({USERS_VARIABLE: wrong})
