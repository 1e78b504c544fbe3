"""Figures of machine code for GPUs that runs of the suite keep for each other: a kernel is compiled once.

They lie in `delegate-farm-tests/gpu-code` of the user's cache (or in `FARM_TEST_CACHE`), and are keyed by the
text, the targets, the compilers' files and ours that calls them. What a compiler refuses is not kept.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from functools import cache
from pathlib import Path

from benchmarks import gpu_compilers
from benchmarks.gpu_compilers import Compiled, Tools
from runtime.delegates.gpu.keep.cache import Cache, open_cache
from tests.services.kept_kernels import folder

LIMIT_BYTES = 1 << 26
"""Bytes that the folder may take: the figures of some ten thousand kernels."""

_compile = Tools.compile


def compile_once(
    self: Tools, name: str, text: str, threads: int, targets: tuple[str, ...]
) -> dict[str, Compiled]:
    """Return what `Tools.compile` does, in whose place it stands, or what an earlier run has kept of it."""
    parts = (name, text, str(threads), *targets, _reader(), *map(_state, self.paths.values()))
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    kept = _figures(folder() / "gpu-code")
    if (known := kept.read("compiled", key)) is not None:
        return {target: Compiled(**figures) for target, figures in json.loads(known).items()}
    found = _compile(self, name, text, threads, targets)
    kept.write("compiled", key, json.dumps({target: asdict(one) for target, one in found.items()}).encode())
    return found


@cache
def _figures(place: Path) -> Cache:
    return open_cache(place, LIMIT_BYTES)


@cache
def _reader() -> str:
    """Return the module that calls the compilers, and reads what they say."""
    return Path(gpu_compilers.__file__).read_text(encoding="utf-8")


@cache
def _state(path: str) -> str:
    """Describe a compiler by its file."""
    stat = Path(path).stat()
    return f"{Path(path).name} {stat.st_size} {stat.st_mtime_ns}"
