"""The references of an attempt: found in the agent's folder, or made by processes that measure nothing.

The folder has what earlier attempts at this model made here, what the farm knows from other agents, and why
a kind could not be made, so that no attempt waits for it again. A runner only reads it: what it makes is left
in the attempt's folder, from which the agent takes it (`agent.attempt.references`).
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.attempt.files import AttemptFile, write_progress
from agent.attempt.references import kept_path, made_path, read_failure, write_made
from agent.runner.opening import input_rules
from agent.runner.probe.host import runtime_identity
from agent.wire.reference import ReferenceRecord
from runtime.delegates.descriptor import INTERPRETER
from runtime.errors import FarmRuntimeError
from runtime.judge.rules import arithmetic_of
from runtime.measure.reference import (
    Reference,
    ReferenceKind,
    draw_kinds,
    litert_maker,
    load_reference,
    reference_key,
    reference_kinds,
)
from runtime.model.reader import load_model

_REFERENCE_SHARE = 0.3
"""The part of an attempt's soft limit that making one reference may take. Chosen: two kinds may be made one
after the other, and both together must leave time to measure. With a larger part a model with slow reference
kernels may end in a timeout; with a smaller one it is measured, but not judged."""

_DRAW_SHARE = 0.06
"""The same of an honest run beside the reference, of which there are up to five. A model that has fewer of
them is judged by the others."""

_BASES = (ReferenceKind.REFERENCE_KERNELS, ReferenceKind.XNNPACK)
"""What outputs are compared with, best first."""

_OF_LITERT = tuple(kind for kind in ReferenceKind if kind is not ReferenceKind.CPU)


@dataclass(frozen=True, slots=True)
class NotMade:
    """Why a reference process made nothing. `lasting`: another try with as much time would end alike."""

    why: str
    lasting: bool


MakeReference = Callable[[ReferenceKind, Path, float], NotMade | None]
"""Runs one reference process of a kind, with its target and its seconds; returns None where it made one."""


@dataclass(frozen=True, slots=True)
class References:
    """The reference by which outputs are judged. `draws`: honest runs beside the reference, by kind."""

    reference: Reference
    draws: Mapping[ReferenceKind, Reference] = field(default_factory=dict)


def find_references(attempt: AttemptFile, folder: Path, make: MakeReference) -> References | str:
    """Return the stored references or new ones, or the reason why this machine cannot make any.

    `folder` is the attempt's, in which new ones are left.
    """
    search = _Search(attempt, folder, make)
    kinds = reference_kinds()
    # Only a machine without LiteRT names CPU among its kinds.
    found = search.of_other_makers() if ReferenceKind.CPU in kinds else {}
    if not found:
        found = {kind: made for kind in kinds if (made := search.one(kind)) is not None}
    if not found:
        # Several kinds often fail for one reason, which is said once.
        return "no reference: " + "; ".join(dict.fromkeys(search.why))
    best = next(found[kind] for kind in (*_BASES, ReferenceKind.CPU) if kind in found)
    draws = {kind: made for kind, made in found.items() if made is not best}
    if ReferenceKind.CPU not in kinds:
        wanted = [kind for kind in _wanted(attempt) if kind not in draws]
        draws |= {kind: made for kind in wanted if (made := search.one(kind, _DRAW_SHARE)) is not None}
    return References(best, draws)


def _wanted(attempt: AttemptFile) -> tuple[ReferenceKind, ...]:
    """Return the honest runs that outputs of the attempt, and of its arms, are judged by."""
    try:
        arithmetic = arithmetic_of(load_model(attempt.model_path))
    except (FarmRuntimeError, OSError):
        # Nothing is known of its arithmetic: the reference alone has to do.
        return ()
    arms = [AttemptFile.model_validate_json(Path(arm).read_bytes()) for arm in attempt.arms]
    options = [one.job.delegate_options for one in (attempt, *arms)]
    precisions = {str(chosen.get("precision")) for chosen in options}
    if any(chosen.get("precision_loss_allowed") for chosen in options):
        precisions.add("fp16")
    return draw_kinds(arithmetic, precisions)


@dataclass(slots=True)
class _Search:
    """Finds or makes the references of one attempt. `why`: for each kind that is not there, the reason."""

    attempt: AttemptFile
    folder: Path
    make: MakeReference
    why: list[str] = field(default_factory=list)
    _made: list[ReferenceRecord] = field(default_factory=list)

    def one(self, kind: ReferenceKind, share: float = _REFERENCE_SHARE) -> Reference | None:
        """Return the reference of a kind as this machine makes it; `share` of the attempt's time may go."""
        maker = runtime_identity(INTERPRETER) if kind is ReferenceKind.CPU else litert_maker()
        key = self._key(kind, maker)
        kept = self._kept(key)
        if kept is not None:
            return kept
        limit_s = share * self.attempt.job.soft_limit_s
        failed = read_failure(Path(self.attempt.references), key)
        # With more time than it had then, another try may succeed.
        if failed is not None and failed.limit_s >= limit_s:
            self.why.append(failed.why)
            return None
        write_progress(self.folder, f"reference ({kind})")
        target = made_path(self.folder, kind.value)
        failure = self.make(kind, target, limit_s)
        if failure is None:
            data = target.read_bytes()
            sha256 = hashlib.sha256(data).hexdigest()
            self._note(
                ReferenceRecord(key=key, kind=kind.value, maker=maker, sha256=sha256, size_bytes=len(data))
            )
            return load_reference(target)
        self.why.append(failure.why)
        if failure.lasting:
            record = ReferenceRecord(
                key=key, kind=kind.value, maker=maker, failure=failure.why, limit_s=limit_s
            )
            self._note(record)
        return None

    def of_other_makers(self) -> dict[ReferenceKind, Reference]:
        """Return LiteRT's references that other agents made, for a machine that lacks LiteRT."""
        known = [record for record in self.attempt.job.references if record.sha256 is not None]
        # False sorts first: the makers of reference kernels, which are the better base.
        known.sort(key=lambda record: record.kind != ReferenceKind.REFERENCE_KERNELS.value)
        for maker in dict.fromkeys(record.maker for record in known):
            keys = {kind: self._key(kind, maker) for kind in _OF_LITERT}
            named = {record.key for record in known}
            found: dict[ReferenceKind, Reference] = {
                kind: kept
                for kind, key in keys.items()
                if key in named and (kept := self._kept(key)) is not None
            }
            if any(kind in found for kind in _BASES):
                return found
        return {}

    def _key(self, kind: ReferenceKind, maker: str) -> str:
        job = self.attempt.job
        rules = input_rules(self.attempt)
        return reference_key(job.model_sha256, rules, kind, maker, job.references_forgotten)

    def _kept(self, key: str) -> Reference | None:
        """Load a reference from the agent's folder; None where it has none, or it is damaged."""
        try:
            return load_reference(kept_path(Path(self.attempt.references), key))
        except (OSError, ValueError):
            return None

    def _note(self, record: ReferenceRecord) -> None:
        # At once: an attempt that ends in a timeout has then not made it in vain.
        self._made.append(record)
        write_made(self.folder, self._made)
