"""Tells how an extra of this package is installed here, and which wheel of it runs, if one does."""

import json
import re
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

DISTRIBUTION: Final = "delegate-farm"

WHEEL_PACKAGE: Final = "delegate_farm"
"""The package below which a wheel of this project has `agent` and `runtime` (`build_backend.py`)."""

CURRENT: Final = "current"
"""The name of the installed package among the commits that a campaign measures."""


def commit_of(package_version: str) -> str:
    """Return the commit that a version of this package names behind a `+`; empty if it names none."""
    return package_version.partition("+")[2]


def build_name(commit: str, sha256: str) -> str:
    """Return the name of the code in a wheel: wheels of one commit may be of different code."""
    return f"{commit}+{sha256[:10]}"


def own_build() -> str:
    """Return `build_name` of the unpacked wheel whose code this process runs; empty for an installed package,
    or if the distribution that is found first on the path is not the one whose code runs.
    """
    found = distribution(DISTRIBUTION)
    folder = Path(str(found.locate_file("")))
    # The agent names the folder of an unpacked wheel by the wheel's SHA-256.
    is_running = Path(__file__).is_relative_to(folder) and re.fullmatch(r"[0-9a-f]{64}", folder.name)
    return build_name(commit_of(found.version), folder.name) if is_running else ""


def own_commit() -> str:
    """Return the commit that names the wheel of `own_build`; empty where that is empty."""
    return own_build().rpartition("+")[0]


def installed_version(name: str) -> str | None:
    """Return the version of a distribution; None if it is not installed. Imports nothing of it."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this Python's installation.

    A clone or a wheel is named by its path, as pip recorded it (PEP 610): a package index may not have it.
    """
    # Isolated: modules in the current folder and PYTHONPATH have no say in what pip imports.
    return shlex.join([sys.executable, "-I", "-m", "pip", "install", *_requirement(extra)])


def _requirement(extra: str) -> list[str]:
    try:
        record = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        record = None
    if record is None:
        return [f"{DISTRIBUTION}[{extra}]"]
    origin = json.loads(record)
    url = urlsplit(origin["url"])
    if url.scheme != "file":
        vcs = f"{origin['vcs_info']['vcs']}+" if "vcs_info" in origin else ""
        return [f"{DISTRIBUTION}[{extra}] @ {vcs}{origin['url']}"]
    path = f"{unquote(url.path)}[{extra}]"
    return ["-e", path] if origin.get("dir_info", {}).get("editable") else [path]
