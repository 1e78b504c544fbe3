"""Small wheels: a release of LiteRT that is the installed one under another number."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

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


def listed(wheel: Path) -> str:
    """Return a wheel's line, as `sha256sum` prints it in its folder."""
    return f"{hashlib.sha256(wheel.read_bytes()).hexdigest()}  {wheel.name}\n"
