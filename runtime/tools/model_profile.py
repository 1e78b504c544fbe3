"""`farm model profile`: times the kernels and operators of a file's model, on one or several delegates."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from runtime.common.profile import LiteRtTimes
from runtime.delegates.base import PartitionDelegate
from runtime.delegates.registry import load_delegate
from runtime.errors import DelegateError
from runtime.measure.inputs import InputRule
from runtime.measure.loading import Opener, Subject
from runtime.measure.profile import Profiled, profile_model

SCHEMA: Final = 1
"""The version of the document. It grows where a field goes or changes its meaning; readers of an older
number must not be given a newer document unseen."""


def profile_file(
    path: Path,
    delegate: str,
    options: Mapping[str, Any],
    rules: Mapping[str, InputRule] | None = None,
    rounds: int = 10,
    further: Sequence[tuple[str, Mapping[str, Any]]] = (),
) -> Profiled:
    """Profile the model in `path` on the first set of a measurement's inputs.

    `further`: delegates and their options, which choose in their turn from what the ones before them left.

    Raises `DelegateError` for an unknown delegate, one that runs whole models, and one that takes nothing;
    `InputSpecNeededError` for an input that needs a rule; and what the runtime raises.
    """
    opener = Opener.prepare(delegate, options, [_partition_delegate(*one) for one in further])
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    found = profile_model(Subject(opener, str(path), sha256, rules), rounds)
    return replace(found, delegate=", ".join((delegate, *(name for name, _ in further))))


def _partition_delegate(name: str, options: Mapping[str, Any]) -> PartitionDelegate:
    found = load_delegate(name, options)
    if not isinstance(found, PartitionDelegate):
        raise DelegateError(f"delegate {name!r} runs whole models, so it cannot take what another one left")
    return found


def document(found: Profiled, file: str, litert: LiteRtTimes | str = "") -> dict[str, Any]:
    """Return the whole profile as `json.dumps` takes it; with LiteRT's times, or why it has none."""
    profile = found.profile
    rows = [
        asdict(row) | {"gflops": row.gflops, "gigabytes_per_second": row.gigabytes} for row in profile.rows
    ]
    theirs: dict[str, Any] = {}
    if isinstance(litert, LiteRtTimes):
        known = litert.by_operator(profile.operators)
        theirs = {"litert": asdict(litert) | {"operators_ns": {str(i): ns for i, ns in known.items()}}}
    elif litert:
        theirs = {"litert": {"reason": litert}}
    return {
        "schema": SCHEMA,
        "file": file,
        "delegate": found.delegate,
        "settings": dict(found.settings),
        "rounds": profile.rounds,
        "run_ns": profile.run_ns,
        "sum_ns": profile.sum_ns,
        "caution": profile.caution,
        "sums_ns": list(profile.sums_ns),
        "stages_ns": dict(profile.stages_ns),
        "peaks": None if profile.peaks is None else asdict(profile.peaks),
        "no_peaks": profile.no_peaks,
        "rows": rows,
        "operators": [asdict(operator) for operator in profile.operators],
        "types": [asdict(one) for one in profile.types],
        **theirs,
    }
