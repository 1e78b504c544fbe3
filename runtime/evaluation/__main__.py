"""`python -m delegate_farm.litert_tools TOOL --NAME=VALUE…`: names that nothing on the path shadows.

`python -m delegate_farm.litert_tools install FOLDER` writes commands with the tools' names.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from runtime.errors import FarmRuntimeError
from runtime.evaluation import (
    benchmark_model,
    image_classification,
    inference_diff,
    launchers,
    object_detection,
    performance_options,
)

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
        for path in launchers.install(folder):
            sys.stdout.write(f"{path}\n")
    except (FarmRuntimeError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
