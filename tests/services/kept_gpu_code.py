"""Figures of machine code for GPUs that runs of the suite keep for each other: a kernel is compiled once.

They lie in `delegate-farm-tests/gpu-code` of the user's cache (or in `FARM_TEST_CACHE`), and are keyed by the
text, the targets, and the contents of the compilers' files and of ours that call them. What a compiler
refuses is not kept.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path

from benchmarks.gpu_compilers import Tools, digest_of
from benchmarks.gpu_machine_code import Compiled
from runtime.delegates.gpu.backends.cuda.ptx import bounds
from runtime.delegates.gpu.keep.cache import Cache, open_cache
from runtime.delegates.gpu.layout.source import Kernel
from tests.services.kept_kernels import folder

LIMIT_BYTES = 1 << 26
"""Bytes that the folder may take: the figures of some ten thousand kernels."""

_compile = Tools.compile


def compile_once(self: Tools, kernel: Kernel, targets: tuple[str, ...]) -> dict[str, Compiled]:
    """Return what `Tools.compile` does, in whose place it stands, or what an earlier run has kept of it."""
    key = digest_of(
        kernel.name, kernel.whole, str(kernel.group), bounds(kernel), *targets, *map(self.digest, targets)
    )
    kept = _figures(folder() / "gpu-code")
    if (known := kept.read("compiled", key)) is not None:
        return {target: Compiled(**figures) for target, figures in json.loads(known).items()}
    found = _compile(self, kernel, targets)
    kept.write("compiled", key, json.dumps({target: asdict(one) for target, one in found.items()}).encode())
    return found


@cache
def _figures(place: Path) -> Cache:
    return open_cache(place, LIMIT_BYTES)
