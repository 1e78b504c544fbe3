"""Small wheels: a release of LiteRT that is the installed one under another number, and this project's."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.needs import REPOSITORY

AS_INSTALLED = "from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)\n"
"""A package that finds its modules in the next folder of Python's path that has a package of its name."""


def build_wheel(folder: Path, version: str, *, tags: str = "py3-none-any", **files: str) -> Path:
    """Write a wheel of ai-edge-litert; `files`: further ones by their names in the package, without `.py`."""
    path = folder / f"ai_edge_litert-{version}-{tags}.whl"
    info = f"ai_edge_litert-{version}.dist-info"
    content = {
        f"ai_edge_litert/{name}.py": text for name, text in ({"__init__": AS_INSTALLED} | files).items()
    }
    content[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: ai-edge-litert\nVersion: {version}\n"
    content[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
    content[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in content)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in content.items():
            archive.writestr(name, text)
    return path


RUN = ("agent/", "runtime/")
"""Folders of this project's wheel that a runner runs code of."""


def own_wheel(folder: Path) -> Path:
    """Build the wheel of this tree, as pip does for `pip install`."""
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet")
    command = [sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", str(folder), str(REPOSITORY)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (made,) = folder.glob("delegate_farm-*.whl")
    return made


def commit_wheel(
    whole: Path,
    folder: Path,
    commit: str,
    change: Callable[[str, str], str] = lambda _name, text: text,
    parts: tuple[str, ...] = RUN,
) -> Path:
    """Write a wheel of this tree that names a commit, with these folders of the `whole` one. `change` returns
    a source's text from its name in the tree and its text in the wheel.
    """
    version = f"0.1.0+{commit}" if commit else "0.1.0"
    path = folder / f"delegate_farm-{version}-py3-none-any.whl"
    with (
        zipfile.ZipFile(whole) as wheel,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
    ):
        for member in wheel.namelist():
            name = member.removeprefix("delegate_farm/")
            if "/" in name and not name.startswith((*parts, "delegate_farm-0.1.0.dist-info/")):
                continue
            text = wheel.read(member).decode()
            if name.endswith("/METADATA"):
                text = text.replace("Version: 0.1.0\n", f"Version: {version}\n")
            place = member.replace("delegate_farm-0.1.0.dist", f"delegate_farm-{version}.dist")
            archive.writestr(place, change(name, text))
    return path


def listed(wheel: Path) -> str:
    """Return a wheel's line, as `sha256sum` prints it in its folder."""
    return f"{hashlib.sha256(wheel.read_bytes()).hexdigest()}  {wheel.name}\n"
