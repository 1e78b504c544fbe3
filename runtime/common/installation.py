"""Tells how an extra of this package is installed here: from where the package itself came."""

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from typing import Final
from urllib.parse import unquote, urlsplit

DISTRIBUTION: Final = "delegate-farm"


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
