"""LiteRT's results that runs of the suite keep for each other: the same model and inputs run there once.

They lie in `delegate-farm-tests/answers` of the user's cache (or in `FARM_TEST_CACHE`), and are keyed by the
function that asks, its file and arguments, the worker's file, LiteRT's version, and the processor, by which
LiteRT chooses its kernels. An error or a crash is not kept: it may come of the machine, for want of memory.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from runtime.delegates.gpu.keep.cache import Cache, open_cache
from runtime.delegates.processor import processor
from tests.needs import REPOSITORY
from tests.services.kept_kernels import folder

LIMIT_BYTES = 1 << 30
"""Bytes that the folder may take. All results of the suite are a quarter of it; smaller would forget those of
another branch, larger only takes disk space.
"""

Answer = tuple[bool, Any]
"""Whether LiteRT gave a result, and the result, or its error as `tests.oracle` gives it."""


def kept_answer(function: str, args: tuple[Any, ...], ask: Callable[[], Answer]) -> Answer:
    """Return the result of an earlier run for the same question, or ask, and keep a result."""
    states = _state(function.partition(":")[0]), _state("tests.oracle")
    parts = (function.encode(), *states, pickle.dumps(args), _litert())
    lengths = repr([len(part) for part in parts]).encode()
    key = hashlib.sha256(b"".join((lengths, *parts))).hexdigest()
    kept = _answers(folder() / "answers")
    if (known := kept.read("litert", key)) is not None:
        return True, pickle.loads(known)
    answer = ask()
    if answer[0]:
        kept.write("litert", key, pickle.dumps(answer[1]))
    return answer


@cache
def _answers(place: Path) -> Cache:
    return open_cache(place, LIMIT_BYTES)


@cache
def _state(module: str) -> bytes:
    """Return the source of a module of ours."""
    return (REPOSITORY / f"{module.replace('.', '/')}.py").read_bytes()


@cache
def _litert() -> bytes:
    """Describe what computes the results."""
    return f"{version('ai-edge-litert')} {processor()}".encode()
