"""Lists the operators of a model that the installed delegates would run; nothing is run here."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from runtime.api.interpreter import Interpreter
from runtime.delegates.base import PartitionDelegate
from runtime.delegates.partition import DelegationReport, Fallback
from runtime.delegates.registry import delegate_descriptor, delegate_factory, delegate_names
from runtime.errors import FarmRuntimeError, ModelError, UnsupportedOperatorError


@dataclass(frozen=True, slots=True)
class DelegateView:
    """The delegation of a model: `taken` of `total` operators, in `partitions`.

    `reasons` counts the operators that it leaves to the CPU, by reason, and `fallbacks` names each of them;
    it runs all others. `obstacle` says why the question
    could not be answered, or why the model cannot run at all.
    """

    delegate: str
    taken: int
    total: int
    partitions: int
    reasons: dict[str, int]
    obstacle: str = ""
    fallbacks: tuple[Fallback, ...] = ()


def delegate_views(file: Path, total: int) -> tuple[DelegateView, ...]:
    """Ask the CPU path and every installed partition delegate about the model in `file`.

    A delegate that runs whole models (a peer) cannot be asked without running it: its obstacle says so.
    """
    return tuple(delegate_view(name, file, total, {}) for name in delegate_names())


def delegate_view(name: str, file: Path, total: int, options: Mapping[str, Any]) -> DelegateView:
    """Ask one of them, with its options, about the model in `file`, which has so many operators."""
    try:
        factory = delegate_factory(delegate_descriptor(name))
        # "load" is what a delegate of whole models has in the place of "supports".
        if hasattr(factory, "load"):
            return DelegateView(
                name, 0, total, 0, {}, "it runs whole models; only a run shows which operators it supports"
            )
        delegates = None if factory is None else [cast(PartitionDelegate, factory(options))]
        interpreter = Interpreter(model_path=str(file), experimental_delegates=delegates)
    except UnsupportedOperatorError as error:
        report = error.delegation
        if isinstance(report, DelegationReport):
            return _reported(name, report, f"the rest cannot run on the CPU: {error}")
        return DelegateView(name, 0, total, 0, {str(error): 1}, "the CPU path cannot run the model")
    except (FarmRuntimeError, ModelError, ImportError) as error:
        return DelegateView(name, 0, total, 0, {}, str(error))
    if interpreter.delegation is None:
        return DelegateView(name, total, total, 1, {})
    return _reported(name, interpreter.delegation)


def _reported(name: str, report: DelegationReport, obstacle: str = "") -> DelegateView:
    # Without the tensor that a reason names, equal ones are counted together.
    reasons = Counter(f"{f.op}: {f.reason.partition(': tensor ')[0]}" for f in report.fallbacks)
    return DelegateView(
        name,
        report.delegated_ops,
        report.total_ops,
        report.partitions,
        dict(reasons),
        obstacle,
        report.fallbacks,
    )
