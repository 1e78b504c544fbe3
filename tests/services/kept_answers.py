"""LiteRT's answers that runs of the suite keep for each other: the same model and inputs run there once.

They lie in `delegate-farm-tests/answers` of the user's cache (or in `FARM_TEST_CACHE`), and are keyed by the
function that asks, its file and arguments, LiteRT's version, and the processor, by which LiteRT chooses its
kernels. An error of LiteRT is an answer, and so is a crash.
"""

from __future__ import annotations

import hashlib
import pickle
import signal
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from runtime.delegates.gpu.keep.cache import Cache, open_cache
from runtime.delegates.processor import processor
from tests.needs import REPOSITORY
from tests.oracle import OracleDiedError
from tests.services.kept_kernels import folder

LIMIT_BYTES = 1 << 30
"""Bytes that the folder may take. All answers of the suite are a quarter of it; smaller would forget those of
another branch, larger only takes disk space.
"""

CRASHES = frozenset(
    -number for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGBUS, signal.SIGILL)
)
"""How a process ends by what it did itself; another end, such as one for want of memory, is no answer."""

Answer = tuple[bool, Any]
"""Whether LiteRT gave a result, and the result, or the class and the text of its error."""


def kept_answer(function: str, args: tuple[Any, ...], ask: Callable[[], Answer]) -> Answer:
    """Return the answer of an earlier run to the same question, or ask and keep what comes.

    Raises `OracleDiedError`.
    """
    parts = (function.encode(), _state(function.partition(":")[0]), pickle.dumps(args), _litert())
    lengths = repr([len(part) for part in parts]).encode()
    key = hashlib.sha256(b"".join((lengths, *parts))).hexdigest()
    kept = _answers(folder() / "answers")
    if (known := kept.read("litert", key)) is not None:
        answer, crash = pickle.loads(known)
    else:
        answer, crash = None, None
        try:
            answer = ask()
        except OracleDiedError as death:
            if death.status not in CRASHES:
                raise
            crash = (str(death), death.status)
        kept.write("litert", key, pickle.dumps((answer, crash)))
    if crash is not None:
        raise OracleDiedError(*crash)
    found: Answer = answer
    return found


@cache
def _answers(place: Path) -> Cache:
    return open_cache(place, LIMIT_BYTES)


@cache
def _state(module: str) -> bytes:
    """Return the source of a module of ours."""
    return (REPOSITORY / f"{module.replace('.', '/')}.py").read_bytes()


@cache
def _litert() -> bytes:
    """Describe what computes the answers."""
    return f"{version('ai-edge-litert')} {processor()}".encode()
