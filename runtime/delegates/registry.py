"""Names to delegates, through the entry-point group `delegate_farm.delegates`.

A delegate is any callable `(options: Mapping[str, value]) -> PartitionDelegate | WholeModelDelegate`.
Nothing is imported until its name is asked for.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeAlias, cast

from runtime.delegates.base import PartitionDelegate, WholeModelDelegate
from runtime.errors import DelegateError

ENTRY_POINT_GROUP = "delegate_farm.delegates"

Delegate: TypeAlias = PartitionDelegate | WholeModelDelegate
DelegateFactory: TypeAlias = Callable[[Mapping[str, Any]], Delegate]


def delegate_names() -> tuple[str, ...]:
    """Every registered name, sorted. `cpu` is not among them: it is the interpreter without a delegate."""
    return tuple(sorted({point.name for point in entry_points(group=ENTRY_POINT_GROUP)}))


def load_delegate(name: str, options: Mapping[str, Any] | None = None) -> Delegate:
    """Make a delegate for `Interpreter(..., experimental_delegates=[...])`.

    Raises `DelegateError` for an unknown name (listing the known ones), for a delegate whose package is
    missing, and for options that it does not take.
    """
    return delegate_factory(name)(dict(options or {}))


def delegate_factory(name: str) -> DelegateFactory:
    """Import a delegate's class without making one. Raises `DelegateError` as `load_delegate` does."""
    point = _entry_point(name)
    try:
        return cast(DelegateFactory, point.load())  # an entry point is untyped by nature
    except (ImportError, AttributeError) as error:
        raise DelegateError(f"delegate {name!r} ({point.value}) cannot be imported: {error}") from error


def _entry_point(name: str) -> EntryPoint:
    found = entry_points(group=ENTRY_POINT_GROUP, name=name)
    for point in found:
        return point
    known = delegate_names()
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise DelegateError(f"no delegate named {name!r}; known: {', '.join(known) or 'none'}{hint}")
