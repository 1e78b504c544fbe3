"""A real `sshd` on this machine: a device that is reached through ssh, as far as ssh can tell."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests import needs
from tests.services.ports import free_port
from tests.services.processes import Server

_SETTINGS: Final = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
UsePAM no
StrictModes no
"""

_CLIENT: Final = """\
Host board
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/user
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known
  StrictHostKeyChecking yes
  KexAlgorithms curve25519-sha256
"""
"""The exchange of keys is that of OpenSSH before version 9: the newer one takes a tenth of a second."""

_AS_ROOT: Final = """\
set -e
mount --make-rprivate /
mount -t tmpfs none /run
mkdir -m 755 /run/sshd
awk -F: -v OFS=: '$3 == 0 {{ $7 = "/bin/sh" }} 1' /etc/passwd >{folder}/passwd
echo sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin >>{folder}/passwd
mount --bind {folder}/passwd /etc/passwd
for kind in thermal power_supply; do mount --bind {folder}/$kind /sys/class/$kind; done
exec {command}
"""
"""Of root, sshd wants a user and a folder of its own: it has them in a view of files of its own, with sensors
that a test writes, and a shell for root that reads no `.bashrc`, which may take longer than the command."""


class Sshd:
    """A server in a folder; `config` is the `ssh_config` by which `board` is this machine."""

    def __init__(self, folder: Path) -> None:
        program = needs.sshd()
        self.config = folder / "ssh_config"
        port = free_port()
        for key in ("host", "user"):
            made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
            subprocess.run(made, check=True, stdin=subprocess.DEVNULL)
        (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
        (folder / "sshd_config").write_text(_SETTINGS.format(port=port, folder=folder))
        user = subprocess.run(["id", "-un"], check=True, capture_output=True, text=True).stdout.strip()
        self.config.write_text(_CLIENT.format(port=port, folder=folder, user=user))
        command = [str(program), "-D", "-e", "-f", str(folder / "sshd_config")]
        self.has_sensors = os.geteuid() == 0
        if self.has_sensors:
            for kind in ("thermal", "power_supply"):
                (folder / kind).mkdir()
            script = _AS_ROOT.format(folder=shlex.quote(str(folder)), command=shlex.join(command))
            command = ["unshare", "--mount", "sh", "-c", script]
        libraries = {"LD_LIBRARY_PATH": str(program.parent)}
        self.server = Server(command, folder / "sshd.log", {**os.environ, **libraries})
        try:
            self.server.until(lambda: _answers(port), "sshd")
        except AssertionError:
            if "mount" in (folder / "sshd.log").read_text():
                pytest.skip("sshd of root needs mounts of its own, which this machine forbids")
            raise

    def sense(self, kind: str, name: str, **values: str) -> None:
        """Write the files of a sensor, as the kernel has them below /sys/class."""
        if not self.has_sensors:
            pytest.skip("sensors that a test writes need root: they lie where the kernel's do")
        sensor = self.config.parent / kind / name
        sensor.mkdir(exist_ok=True)
        for file, value in values.items():
            (sensor / file).write_text(f"{value}\n")

    def unplug(self) -> None:
        """End every connection at once, without a word to either side; what runs there is not told."""
        for pid in _descendants(self.server.pid):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == "sshd":
                    os.kill(pid, signal.SIGKILL)


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                yield from _descendants(child)
                yield child


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as tried:
        return tried.recv(4) == b"SSH-"
    return False


@contextlib.contextmanager
def sshd(folder: Path) -> Iterator[Sshd]:
    """Start a server on `folder`, and end it."""
    started = Sshd(folder)
    try:
        yield started
    finally:
        started.server.kill()


def tool_of_this_project(folder: Path) -> Path:
    """Put this project's `benchmark_model` into a folder, as a user does; return its path."""
    command = [sys.executable, "-P", "-m", "runtime.evaluation", "install", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / "benchmark_model"
