"""`python -m runtime.evaluation TOOL --NAME=VALUE…`: names that nothing on the path shadows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from runtime.evaluation import benchmark_model, image_classification, inference_diff, object_detection

TOOLS: Final[Mapping[str, Callable[[Sequence[str]], int]]] = {
    "benchmark_model": benchmark_model.main,
    "coco_object_detection_run_eval": object_detection.main,
    "image_classification_run_eval": image_classification.main,
    "inference_diff": inference_diff.main,
}


def main(words: Sequence[str]) -> int:
    """Run the tool that the first word names; return its exit code."""
    if not words or words[0] not in TOOLS:
        sys.stderr.write(f"usage: python -m runtime.evaluation {{{','.join(TOOLS)}}} --NAME=VALUE…\n")
        return 2
    return TOOLS[words[0]](words[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
