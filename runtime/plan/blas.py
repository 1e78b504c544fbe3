"""Keeps numpy's BLAS on one thread while a model runs: kernels split their rows among threads themselves."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock

_NAMES = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads", "openblas_{}_num_threads")


class _Blas:
    """The thread count of the OpenBLAS that numpy has loaded.

    The whole process shares it, so users are counted: the first saves the count, the last restores it.
    """

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self._get = getattr(library, name.format("get"))
        self._set = getattr(library, name.format("set"))
        self._lock = Lock()
        self._users = 0
        self._before = 1

    def enter(self) -> None:
        with self._lock:
            if self._users == 0:
                self._before = self._get()
                if self._before != 1:
                    self._set(1)
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._before != 1:
                self._set(self._before)


@cache
def _blas() -> _Blas | None:
    maps = Path("/proc/self/maps")
    # numpy has no call for it: the library that it has loaded is found among the mapped files.
    lines = maps.read_text(encoding="utf-8").splitlines() if maps.exists() else []
    paths = {line.split(maxsplit=5)[-1] for line in lines if "openblas" in line.rsplit("/", 1)[-1]}
    for path in sorted(paths):
        # It is loaded already: this opens the same library once more, with the same state.
        library = ctypes.CDLL(path)
        for name in _NAMES:
            if hasattr(library, name.format("set")):
                return _Blas(library, name)
    return None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep OpenBLAS on the calling thread within the block; another BLAS keeps the count it has."""
    blas = _blas()
    if blas is None:
        yield
        return
    blas.enter()
    try:
        yield
    finally:
        blas.leave()
