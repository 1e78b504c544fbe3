"""Bare Debian machines on this host: booted with systemd in containers, on a network of their own.

Their packages are fetched once, into the folder `$FARM_TEST_MACHINES` (default: `/var/tmp/farm-machines`), so
that a playbook installs them without a network.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests import needs

BASE = Path(os.environ.get("FARM_TEST_MACHINES") or "/var/tmp/farm-machines")
BRIDGE = "farm-deploy"
NETWORK = ipaddress.ip_network("10.213.77.0/24")
PRESENT = "systemd systemd-sysv dbus python3 python3-apt openssh-server iproute2 ca-certificates"
"""What a machine has before the playbook: what Debian's installer leaves, and Python for Ansible."""

FETCHED = "python3-venv redis-server postgresql pocl-opencl-icd openssl nginx-light"
"""What the playbook installs; the machines have the files and no network."""

CONFINEMENT = "landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp"
"""System calls that a container is denied and a machine is not: the agent confines its runners with them."""

BOOT_S = 90.0
"""Seconds in which a machine boots; it takes about 12 on an idle host."""


def required() -> None:
    """End the test where this host cannot have such machines."""
    if os.geteuid() != 0:
        needs.absent("machines are booted as root only")
    for tool in ("debootstrap", "systemd-nspawn", "ip", "ssh", "ssh-keygen"):
        if shutil.which(tool) is None:
            needs.absent(f"no {tool}: apt-get install debootstrap systemd-container iproute2 openssh-client")


def base() -> Path:
    """Return the file system of which every machine is a copy; made once for these packages."""
    packages = hashlib.sha256(f"{PRESENT}/{FETCHED}".encode()).hexdigest()[:8]
    root = BASE / f"base-{packages}"
    if not root.is_dir():
        mirror = _mirror()
        part = BASE / "base.part"
        shutil.rmtree(part, ignore_errors=True)
        BASE.mkdir(parents=True, exist_ok=True)
        _run("debootstrap", "--variant=minbase", "bookworm", str(part), mirror)
        shutil.copy("/etc/resolv.conf", part / "etc/resolv.conf")
        install = "DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends"
        _run("chroot", str(part), "sh", "-c", f"apt-get update -q && {install} {PRESENT}")
        _run("chroot", str(part), "sh", "-c", f"{install} --download-only {FETCHED}")
        _run("chroot", str(part), "systemctl", "enable", "systemd-networkd", "ssh")
        part.rename(root)
    return root


@dataclass
class Machine:
    """One machine. `ssh` runs a command there as root."""

    name: str
    address: str
    key: Path
    known: Path
    hosts: str
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def root(self) -> Path:
        """Its file system."""
        return BASE / "running" / self.name

    def make(self) -> None:
        """Make a fresh copy, not booted."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.parent.mkdir(parents=True, exist_ok=True)
        _run("cp", "-a", "--reflink=auto", str(base()), str(self.root))
        (self.root / "etc/hostname").write_text(f"{self.name}\n")
        (self.root / "etc/hosts").write_text(self.hosts)
        (self.root / "etc/resolv.conf").write_text("")
        network = f"[Match]\nName=host0\n[Network]\nAddress={self.address}/{NETWORK.prefixlen}\n"
        (self.root / "etc/systemd/network/10-host0.network").write_text(network)
        keys = self.root / "root/.ssh"
        keys.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(self.key.with_suffix(".pub"), keys / "authorized_keys")

    def boot(self) -> None:
        """Start it and wait until it is reached."""
        command = ["systemd-nspawn", "--quiet", "--directory", str(self.root), "--machine", self.name]
        command += ["--register=no", "--keep-unit", "--boot", f"--network-bridge={BRIDGE}"]
        command += [f"--system-call-filter={CONFINEMENT}", "systemd.unified_cgroup_hierarchy=0"]
        with (BASE / "running" / f"{self.name}.console").open("ab") as console:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True
            )
        end = time.monotonic() + BOOT_S
        while self.ssh("systemctl is-system-running --wait", check=False).returncode == 255:
            assert time.monotonic() < end, f"{self.name} does not boot: see {console.name}"
            time.sleep(1)

    def stop(self) -> None:
        """Pull its plug."""
        if self._process is None:
            return
        for child in _children(self._process.pid):
            os.kill(child, signal.SIGKILL)
        self._process.wait(timeout=30)
        self._process = None

    def cable(self, *, plugged: bool) -> None:
        """Pull its network cable, or plug it in."""
        _run("ip", "link", "set", f"vb-{self.name}"[:15], "up" if plugged else "down")

    def ssh(self, command: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a shell command there. Exit code 255: it cannot be reached."""
        ran = subprocess.run(
            ["ssh", "-i", str(self.key), *ssh_options(self.known), f"root@{self.address}", command],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert not check or ran.returncode == 0, f"{self.name}: {command}: {ran.stdout}{ran.stderr}"
        return ran


def ssh_options(known: Path) -> list[str]:
    """Hosts that come and go are known in a file of the test's own."""
    options = (
        "StrictHostKeyChecking=no",
        f"UserKnownHostsFile={known}",
        "ConnectTimeout=5",
        "LogLevel=ERROR",
    )
    return [word for option in options for word in ("-o", option)]


def fleet(names: Sequence[str], folder: Path) -> list[Machine]:
    """Machines that know each other by name, made and not booted; `folder` has the key to them."""
    key = folder / "key"
    if not key.exists():
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    host, *addresses = [str(address) for address in list(NETWORK.hosts())[: len(names) + 1]]
    if _run("ip", "link", "show", BRIDGE, check=False).returncode != 0:
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
        _run("ip", "addr", "add", f"{host}/{NETWORK.prefixlen}", "dev", BRIDGE)
    _run("ip", "link", "set", BRIDGE, "up")
    lines = [f"{address} {name}\n" for name, address in zip(names, addresses, strict=True)]
    hosts = "".join(["127.0.0.1 localhost\n", *lines])
    made = []
    for name, address in zip(names, addresses, strict=True):
        machine = Machine(name, address, key, folder / "known_hosts", hosts)
        machine.make()
        made.append(machine)
    return made


def remove_network() -> None:
    """Remove what `fleet` made on this host."""
    _run("ip", "link", "del", BRIDGE, check=False)


def _mirror() -> str:
    """Return the mirror of this host's own packages."""
    for path in Path("/etc/apt/sources.list.d").glob("*.sources"):
        for line in path.read_text().splitlines():
            if line.startswith("URIs:"):
                return line.split()[1]
    return "http://deb.debian.org/debian"


def _children(pid: int) -> list[int]:
    ran = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in ran.stdout.split()]


def _run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not check or ran.returncode == 0, f"{' '.join(command)}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}"
    return ran
