"""Tells how an extra of this package is installed here, and of which commit the running package is."""

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
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


def own_commit() -> str:
    """Return the commit of which the package that this process runs was built; empty if it names none, or if
    the distribution that is found first on the path is not the one whose code runs.
    """
    found = distribution(DISTRIBUTION)
    is_running = Path(__file__).is_relative_to(str(found.locate_file("")))
    return commit_of(found.version) if is_running else ""


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this Python's installation.

    A clone or a wheel is named by its path, as pip recorded it (PEP 610): a package index may not have it.
    """
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
