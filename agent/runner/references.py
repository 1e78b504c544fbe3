"""The references of an attempt: found in the agent's folder, or made by processes that measure nothing.

A kind that failed is remembered beside its place, so that no later attempt waits for it again, and the folder
is bounded: what was used longest ago goes first.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent.attempt.files import AttemptFile, write_atomically, write_progress
from agent.runner.host import runtime_identity
from agent.runner.measure import input_rules
from runtime.delegates.litert import litert_version
from runtime.tools.reference import (
    Reference,
    ReferenceKind,
    load_reference,
    reference_kinds,
    reference_path,
)

_REFERENCE_SHARE = 0.3
"""The part of an attempt's soft limit that making one reference may take. Chosen: two kinds may be made one
after the other, and both together must leave time to measure. With a larger part a model with slow reference
kernels may end in a timeout; with a smaller one it is measured, but not judged."""

LARGEST_FOLDER_BYTES = 2 << 30
"""Bytes that an agent keeps of references. Chosen: outputs of thousands of models, since one reference is
rarely over a megabyte. Smaller, and an agent of many models makes references again."""


@dataclass(frozen=True, slots=True)
class NotMade:
    """Why a reference process made nothing. `lasting`: another try with as much time would end alike."""

    why: str
    lasting: bool


MakeReference = Callable[[ReferenceKind, Path, float], NotMade | None]
"""Runs one reference process of a kind, with its target and its seconds; returns None where it made one."""


@dataclass(frozen=True, slots=True)
class References:
    """What outputs are judged by. `peer`: XNNPACK's outputs beside those of the reference kernels."""

    reference: Reference
    peer: Reference | None = None


def find_references(attempt: AttemptFile, folder: Path, make: MakeReference) -> References | str:
    """Return the stored references or new ones, or the reason why this machine cannot make any."""
    why: list[str] = []
    found: dict[ReferenceKind, Reference] = {}
    for kind in reference_kinds():
        made = _one(attempt, folder, kind, make)
        if isinstance(made, str):
            why.append(made)
        else:
            found[kind] = made
    _bound(Path(attempt.references))
    if not found:
        return "no reference: " + "; ".join(why)
    best = next(iter(found.values()))
    exact = best.kind is ReferenceKind.REFERENCE_KERNELS
    return References(best, found.get(ReferenceKind.XNNPACK) if exact else None)


def _one(attempt: AttemptFile, folder: Path, kind: ReferenceKind, make: MakeReference) -> Reference | str:
    job = attempt.job
    maker = runtime_identity() if kind is ReferenceKind.CPU else str(litert_version())
    path = reference_path(Path(attempt.references), job.model_sha256, input_rules(job.inputs), kind, maker)
    limit_s = _REFERENCE_SHARE * job.soft_limit_s
    if not path.exists():
        failed = _Failed.read(path)
        if failed is not None and failed.limit_s >= limit_s:
            return failed.why
        write_progress(folder, f"reference ({kind})")
        failure = make(kind, path, limit_s)
        if failure is not None:
            if failure.lasting:
                _Failed(failure.why, limit_s).write(path)
            return failure.why
    # The time of the last use, by which `_bound` chooses what goes.
    with contextlib.suppress(OSError):
        path.touch()
    return load_reference(path)


@dataclass(frozen=True, slots=True)
class _Failed:
    """A reference that could not be made within `limit_s`; an attempt that gives more time tries again."""

    why: str
    limit_s: float

    @staticmethod
    def _path(reference: Path) -> Path:
        return reference.with_suffix(".failed")

    @classmethod
    def read(cls, reference: Path) -> _Failed | None:
        """Return what was written for this reference, or None."""
        try:
            stored = json.loads(cls._path(reference).read_text(encoding="utf-8"))
            return cls(str(stored["why"]), float(stored["limit_s"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, reference: Path) -> None:
        """Remember it beside the reference's place."""
        reference.parent.mkdir(parents=True, exist_ok=True)
        stored = {"why": self.why, "limit_s": self.limit_s}
        write_atomically(self._path(reference), json.dumps(stored).encode())


def _bound(folder: Path) -> None:
    """Remove what was used longest ago until the folder is within its bound."""
    stored = []
    for path in folder.glob("*.npz"):
        # Another attempt on this host may remove it meanwhile.
        with contextlib.suppress(OSError):
            facts = path.stat()
            stored.append((facts.st_mtime_ns, facts.st_size, path))
    total = sum(size for _, size, _ in stored)
    for _, size, path in sorted(stored):
        if total <= LARGEST_FOLDER_BYTES:
            return
        with contextlib.suppress(OSError):
            path.unlink()
            total -= size
