"""Opens a model on a delegate, fills its inputs as a measurement does, and profiles it."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.api.interpreter import Interpreter
from runtime.delegates.base import PartitionDelegate
from runtime.delegates.registry import load_delegate
from runtime.errors import DelegateError
from runtime.measure.inputs import InputRule, make_pool
from runtime.measure.loading import Opener
from runtime.plan.profile import ModelProfile


@dataclass(frozen=True, slots=True)
class Profiled:
    """A profile with the delegate's effective settings."""

    delegate: str
    settings: Mapping[str, str]
    profile: ModelProfile


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
    if hasattr(opener.factory, "load"):
        raise DelegateError(f"delegate {delegate!r} runs whole models and tells nothing of what is in a run")
    opened = opener.open(str(path), rules)
    model = opened.model
    assert isinstance(model, Interpreter)
    details = model.get_input_details()
    pool = make_pool(details, hashlib.sha256(path.read_bytes()).hexdigest(), rules)
    for detail, values in zip(details, pool.sets[0], strict=True):
        model.set_tensor(int(detail["index"]), values)
    found = model.profile(rounds)
    settings = dict(opened.describe())
    model.close()
    return Profiled(", ".join((delegate, *(name for name, _ in further))), settings, found)


def _partition_delegate(name: str, options: Mapping[str, Any]) -> PartitionDelegate:
    """Load the delegate. Raises `DelegateError` for one that takes whole models."""
    found = load_delegate(name, options)
    if not isinstance(found, PartitionDelegate):
        raise DelegateError(f"delegate {name!r} runs whole models, so it cannot take what another one left")
    return found
