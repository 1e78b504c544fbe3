"""`python -m delegate_farm.litert_tools TOOL --NAME=VALUE…`: names that nothing on the path shadows.

`python -m delegate_farm.litert_tools install FOLDER` writes commands with the tools' names.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

from runtime.errors import FarmRuntimeError
from runtime.evaluation import (
    benchmark_model,
    image_classification,
    inference_diff,
    object_detection,
    performance_options,
)

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
        path = folder / tool.name
        if path.exists() and _MARK not in path.read_bytes()[:4096].decode(errors="replace"):
            raise FarmRuntimeError(f"{path} is another program; choose another folder")
    for tool in tools:
        path = folder / tool.name
        path.write_text(_text(tool), encoding="utf-8")
        path.chmod(0o755)
        yield path


def _text(tool: EntryPoint) -> str:
    # "-I": neither the command's folder nor PYTHONPATH can put another module in the place of this package.
    python = " ".join([sys.executable, "-I"])
    return _TEXT.format(python=python, mark=_MARK, module=tool.module, function=tool.attr)


TOOLS: Final[Mapping[str, Callable[[Sequence[str]], int]]] = {
    "benchmark_model": benchmark_model.main,
    "benchmark_model_performance_options": performance_options.main,
    "coco_object_detection_run_eval": object_detection.main,
    "image_classification_run_eval": image_classification.main,
    "inference_diff": inference_diff.main,
}


def main(words: Sequence[str]) -> int:
    """Run the tool that the first word names, or install all; return the exit code."""
    if list(words[:1]) == ["install"] and len(words) == 2:  # the word and a folder
        return _install(Path(words[1]))
    if not words or words[0] not in TOOLS:
        sys.stderr.write(
            f"usage: python -m delegate_farm.litert_tools {{{','.join(TOOLS)}}} --NAME=VALUE…\n"
            "       python -m delegate_farm.litert_tools install FOLDER\n"
        )
        return 2
    return TOOLS[words[0]](words[1:])


def _install(folder: Path) -> int:
    try:
        for path in install(folder):
            sys.stdout.write(f"{path}\n")
    except (FarmRuntimeError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
