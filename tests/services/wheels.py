"""Small wheels: a release of LiteRT that is the installed one under another number, and this project's."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from importlib.metadata import distribution
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


def commit_wheel(
    folder: Path, commit: str, change: Callable[[str, str], str] = lambda _name, text: text
) -> Path:
    """Write a wheel of this tree that names a commit. `change` returns a source's text from its name."""
    version = f"0.1.0+{commit}" if commit else "0.1.0"
    path = folder / f"delegate_farm-{version}-py3-none-any.whl"
    info = f"delegate_farm-{version}.dist-info"
    points = distribution("delegate-farm").read_text("entry_points.txt")
    assert points is not None
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for package in ("agent", "runtime"):
            for file in sorted((REPOSITORY / package).rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    name = file.relative_to(REPOSITORY).as_posix()
                    archive.writestr(name, change(name, file.read_text(encoding="utf-8")))
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: delegate-farm\nVersion: {version}\n"
        )
        archive.writestr(f"{info}/entry_points.txt", points)
    return path


def listed(wheel: Path) -> str:
    """Return a wheel's line, as `sha256sum` prints it in its folder."""
    return f"{hashlib.sha256(wheel.read_bytes()).hexdigest()}  {wheel.name}\n"
