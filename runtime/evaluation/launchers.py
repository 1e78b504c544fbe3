"""Puts commands with the names of LiteRT's tools into a folder that the user chooses.

They are entry points of a group of their own, which pip makes no commands of: nothing shadows LiteRT's
binaries until somebody asks for it.
"""

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

from runtime.errors import FarmRuntimeError

GROUP: Final = "delegate_farm.litert_tools"
"""The group of entry points: each is a command's name and its function, which takes no arguments."""

_MARK: Final = "# written by delegate-farm"
_TEXT: Final = """#!{python}
{mark}
import sys
from {module} import {function}
sys.exit({function}())
"""


def install(folder: Path) -> Iterator[Path]:
    """Write a command for each tool, and yield its path; one that this has written before is replaced.

    Raises `FarmRuntimeError` before anything is written where another file has the name of a tool; `OSError`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tools = sorted(entry_points(group=GROUP))
    for tool in tools:
        _require_ours(folder / tool.name)
    for tool in tools:
        path = folder / tool.name
        path.write_text(_text(tool), encoding="utf-8")
        path.chmod(0o755)
        yield path


def _require_ours(path: Path) -> None:
    if path.exists() and _MARK not in path.read_bytes()[:4096].decode(errors="replace"):
        raise FarmRuntimeError(f"{path} is another program; choose another folder")


def _text(tool: EntryPoint) -> str:
    python = " ".join([sys.executable, "-I"])
    return _TEXT.format(python=python, mark=_MARK, module=tool.module, function=tool.attr)
