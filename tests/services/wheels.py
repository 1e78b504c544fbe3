"""Small wheels: a release of LiteRT that is the installed one under another number, and this project's."""

from __future__ import annotations

import contextlib
import hashlib
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import build_backend
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


@cache
def own_wheel() -> dict[str, str]:
    """Return the text of each source in the wheel of this tree, and its metadata, by their names there."""
    with TemporaryDirectory() as folder:
        with contextlib.chdir(REPOSITORY):
            name = build_backend.build_wheel(folder)
        with zipfile.ZipFile(Path(folder, name)) as wheel:
            wanted = (
                n for n in wheel.namelist() if n.startswith(("delegate_farm/", "delegate_farm-0.1.0.dist"))
            )
            return {name: wheel.read(name).decode() for name in wanted}


def commit_wheel(
    folder: Path, commit: str, change: Callable[[str, str], str] = lambda _name, text: text
) -> Path:
    """Write a wheel of this tree that names a commit. `change` returns a source's text from its name in the
    tree and its text in the wheel.
    """
    version = f"0.1.0+{commit}" if commit else "0.1.0"
    path = folder / f"delegate_farm-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, text in own_wheel().items():
            of_metadata = text.replace("Version: 0.1.0\n", f"Version: {version}\n")
            content = of_metadata if name.endswith("/METADATA") else text
            place = name.replace("delegate_farm-0.1.0.dist", f"delegate_farm-{version}.dist")
            archive.writestr(place, change(name.removeprefix("delegate_farm/"), content))
    return path


def listed(wheel: Path) -> str:
    """Return a wheel's line, as `sha256sum` prints it in its folder."""
    return f"{hashlib.sha256(wheel.read_bytes()).hexdigest()}  {wheel.name}\n"
