"""Coverage-guided fuzzing of the metadata reader (atheris, libFuzzer's engine): new paths are kept.

python -m tests.fuzz.coverage --runs 100000
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["runtime.model"]):
    from runtime.errors import ModelFormatError
    from runtime.model.reader import read_model
    from runtime.model.skeleton import is_skeleton, restore_skeleton

from tests.fuzz.command import CORPUS
from tests.fuzz.seeds import shared_files

MAX_BYTES = 4_096
_SKELETON_BYTES = 1 << 20


def one_input(data: bytes) -> None:
    """Read the data: a model or a `ModelFormatError`; libFuzzer reports anything else."""
    with contextlib.suppress(ModelFormatError):
        if is_skeleton(data) and len(data) < _SKELETON_BYTES:
            data = bytes(restore_skeleton(data))
        read_model(data)


def main() -> None:
    """Run libFuzzer on the kept corpus and the small real files; what reaches new code joins the corpus."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.coverage")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for path in shared_files():
            if path.stat().st_size <= MAX_BYTES:
                (Path(folder) / path.name).write_bytes(path.read_bytes())
        flags = [f"-runs={options.runs}", f"-seed={options.seed}", f"-max_len={MAX_BYTES}"]
        limits = ["-timeout=2", "-rss_limit_mb=512", "-print_final_stats=1", "-verbosity=1"]
        atheris.Setup([sys.argv[0], str(CORPUS), folder, *flags, *limits], one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
