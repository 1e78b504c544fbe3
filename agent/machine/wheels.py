"""Releases of a package, and commits of this project, beside the installed one: wheels that this host's
operator allowed by their SHA-256.

The list has lines as `sha256sum *.whl` prints them. Each wheel is unpacked once, without a network, into a
folder named by its hash, which a measuring process finds before what is installed.
"""

import compileall
import hashlib
import logging
import os
import platform
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.wire.messages import PROTOCOL_VERSION, RELEASES_REFUSED_FACT, release_name
from runtime.common.installation import CURRENT, DISTRIBUTION, WHEEL_PACKAGE, build_name, commit_of

WHEELS_VARIABLE: Final = "FARM_RUNNER_WHEELS"
"""The list of allowed wheels, an absolute path. Wheels are named from its folder."""

MOST_WHEELS: Final = 32
"""Chosen: a device names every release with each delegate that has it, and a message has room for 128."""

# sha256sum writes `*` in front of a name that it read in binary mode.
_LINE: Final = re.compile(r"([0-9a-f]{64}) [ *](\S.*)")
_NAME: Final = re.compile(r"([A-Za-z0-9._]+)-([A-Za-z0-9._!+]+)(?:-\d[^-]*)?-([^-]+)-([^-]+)-([^-]+)\.whl")
"""`NAME-VERSION[-BUILD]-PYTHON-ABI-PLATFORM.whl` (PyPA's specification of binary distributions)."""

log = logging.getLogger(__name__)


class _RefusedError(Exception):
    """A line of the list that gives no release."""


@dataclass(frozen=True, slots=True)
class Wheels:
    """`folders`: those of unpacked releases by `DISTRIBUTION@VERSION`, of this project `DISTRIBUTION@COMMIT`.
    `refused`: why others are missing."""

    folders: Mapping[str, Path] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    def releases(self) -> tuple[str, ...]:
        """Return the names of `folders`, those of this project with the hash that its results have."""
        return tuple(
            build_name(name, folder.name) if name.startswith(release_name(DISTRIBUTION, "")) else name
            for name, folder in self.folders.items()
        )

    def facts(self) -> dict[str, str]:
        """Return what the host's devices say of the wheels that were refused."""
        return {RELEASES_REFUSED_FACT: "; ".join(self.refused)} if self.refused else {}


def wheel_list(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the list of allowed wheels, None if there is none. Raises `ValueError` naming the variable."""
    text = environment.get(WHEELS_VARIABLE)
    if not text:
        return None
    if not Path(text).is_absolute() or not Path(text).is_file():
        raise ValueError(f"{WHEELS_VARIABLE}: {text!r} is not the absolute path of a file; see docs/lab.md")
    return Path(text)


def unpack(listed: Path | None, into: Path) -> Wheels:
    """Unpack the wheels of a list into folders below `into`. One that cannot be used is refused, and logged.

    Raises `OSError` where the list cannot be read or a folder not be written.
    """
    if listed is None:
        return Wheels()
    folders: dict[str, Path] = {}
    refused = []
    lines = [line for line in listed.read_text().splitlines() if line.strip() and line[0] != "#"]
    for line in lines[:MOST_WHEELS]:
        try:
            folders |= _unpacked(line, listed.parent, into, folders)
        except _RefusedError as error:
            refused.append(str(error))
    if len(lines) > MOST_WHEELS:
        refused.append(f"{listed} names {len(lines)} wheels; only the first {MOST_WHEELS} are used")
    for why in refused:
        log.warning("%s", why)
    return Wheels(folders, tuple(refused))


def _unpacked(line: str, base: Path, into: Path, known: Mapping[str, Path]) -> dict[str, Path]:
    parts = _LINE.fullmatch(line.rstrip())
    named = None if parts is None else _NAME.fullmatch(Path(parts[2]).name)
    if parts is None or named is None:
        raise _RefusedError(f"{line!r} is no line of `sha256sum NAME-VERSION-PYTHON-ABI-PLATFORM.whl`")
    sha256, wheel = parts[1], base / parts[2]
    distribution, version, *tags = named.groups()
    distribution = re.sub(r"[-_.]+", "-", distribution).lower()
    is_own = distribution == DISTRIBUTION
    if is_own and not commit_of(version):
        raise _RefusedError(f"{wheel.name} names no commit: its version must be like 0.1.0+abc1234")
    if is_own and commit_of(version) == CURRENT:
        raise _RefusedError(f"{wheel.name}: {CURRENT!r} is the installed farm; name the wheel's commit")
    name = release_name(distribution, commit_of(version) if is_own else version)
    if (why := _unfit(*tags)) is not None:
        raise _RefusedError(f"{wheel.name} is {why}")
    if name in known:
        raise _RefusedError(f"{wheel.name}: another wheel of the list is {name} too")
    target = into / sha256
    if not target.is_dir():
        _unpack_verified(wheel, sha256, target)
    if is_own and (spoken := _protocol_of(target)) != PROTOCOL_VERSION:
        raise _RefusedError(
            f"{wheel.name} speaks protocol {spoken or 'none'}, and this agent {PROTOCOL_VERSION}: it is a "
            "commit that this one cannot measure"
        )
    return {name: target}


def _protocol_of(folder: Path) -> int | None:
    """Return the version of the messages of this project's own wheel; None if it has none."""
    try:
        text = (folder / WHEEL_PACKAGE / "agent/wire/messages.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"^PROTOCOL_VERSION = (\d+)$", text, re.MULTILINE)
    return None if found is None else int(found[1])


def _unfit(python: str, abi: str, system: str) -> str | None:
    """Return what a wheel is for, if not for this Python and machine."""
    own = f"cp{sys.version_info.major}{sys.version_info.minor}"
    if not {own, "py3"} & set(python.split(".")) or not {own, "abi3", "none"} & set(abi.split(".")):
        return f"for {python}-{abi}, and this Python is {own}"
    # A wheel for both processors of Macs names neither.
    machines = (platform.machine(), *(("universal2",) if sys.platform == "darwin" else ()))
    is_ours = system.startswith("macosx") == (sys.platform == "darwin") and system.endswith(machines)
    if system != "any" and not is_ours:
        return f"for {system}, and this machine is {sys.platform} {platform.machine()}"
    return None


def _unpack_verified(wheel: Path, sha256: str, target: Path) -> None:
    """Unpack a wheel whose bytes have this hash. A folder that is there is whole."""
    try:
        with wheel.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != sha256:
                raise _RefusedError(f"{wheel.name} has the SHA-256 {found}, and {sha256} is allowed")
            target.parent.mkdir(parents=True, exist_ok=True)
            own = Path(tempfile.mkdtemp(dir=target.parent))
            try:
                with zipfile.ZipFile(file) as archive:
                    # Of the descriptor whose bytes were hashed. zipfile keeps every name within the folder.
                    archive.extractall(own)
                if (data := next(own.glob("*.data/*lib"), None)) is not None:
                    raise _RefusedError(f"{wheel.name} puts files outside of its package ({data.name})")
                # Runners may not write here, and a start that compiles is slower than one of what is
                # installed, where pip compiles. What cannot be compiled stays a source, as with pip.
                # The bytecode names its sources by the folder's later name.
                compileall.compile_dir(own, quiet=2, stripdir=str(own), prependdir=str(target))
                own.rename(target)
            except BaseException:
                shutil.rmtree(own, ignore_errors=True)
                raise
    except FileNotFoundError:
        raise _RefusedError(f"{wheel} is allowed, and is not there") from None
    except zipfile.BadZipFile as error:
        raise _RefusedError(f"{wheel.name} is no wheel: {error}") from None
