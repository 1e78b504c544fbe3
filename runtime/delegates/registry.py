"""Names to delegates, through the entry-point group `delegate_farm.delegates`.

An entry point names a `DelegateDescriptor`. Listing names imports nothing, a descriptor imports its own
module, and a delegate's implementation is imported where it is made.
"""

import difflib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import Any, TypeAlias, cast

from runtime.delegates.base import PartitionDelegate, WholeModelDelegate
from runtime.delegates.descriptor import DelegateDescriptor
from runtime.errors import DelegateError

ENTRY_POINT_GROUP = "delegate_farm.delegates"

Delegate: TypeAlias = PartitionDelegate | WholeModelDelegate
DelegateFactory: TypeAlias = Callable[[Mapping[str, Any]], Delegate]


def delegate_names() -> tuple[str, ...]:
    """Every registered name, sorted; `cpu`, the interpreter without a delegate, is among them."""
    return tuple(sorted({point.name for point in entry_points(group=ENTRY_POINT_GROUP)}))


def delegate_descriptor(name: str) -> DelegateDescriptor:
    """Return the descriptor that the entry point `name` names; its implementation is not imported.

    Raises `DelegateError` for an unknown name (listing the known ones), for a name that two packages
    register, for a package that cannot be imported, and for an entry point that names no descriptor.
    """
    point = _entry_point(name)
    found = _imported(point)
    if not isinstance(found, DelegateDescriptor):
        raise DelegateError(
            f"delegate {name!r} ({point.value}) is a {type(found).__name__}; the entry point must name a "
            "DelegateDescriptor (docs/delegates.md)"
        )
    if found.name != name:
        raise DelegateError(f"delegate {name!r} ({point.value}) calls itself {found.name!r}; use one name")
    return found


def delegate_distribution(name: str) -> Distribution | None:
    """Return the installed package that brings the delegate, None if its metadata is not found.

    Raises `DelegateError` as `delegate_descriptor`.
    """
    return _entry_point(name).dist


def load_delegate(name: str, options: Mapping[str, Any] | None = None) -> Delegate:
    """Make a delegate for `Interpreter(..., experimental_delegates=[...])`.

    Raises `DelegateError` for an unknown name (listing the known ones), for a delegate whose package is
    missing, for options that it does not take, and for `cpu`, which has nothing to make.
    """
    factory = delegate_factory(delegate_descriptor(name))
    if factory is None:
        raise DelegateError(f"{name!r} is the interpreter itself; leave it out of experimental_delegates")
    return factory(dict(options or {}))


def delegate_factory(descriptor: DelegateDescriptor) -> DelegateFactory | None:
    """Import a delegate's class without making one; None where the interpreter runs alone.

    Raises `DelegateError` for a package that cannot be imported.
    """
    if descriptor.implementation is None:
        return None
    point = EntryPoint(descriptor.name, descriptor.implementation, ENTRY_POINT_GROUP)
    return cast(DelegateFactory, _imported(point))  # a name in a text is untyped by nature


def _imported(point: EntryPoint) -> object:
    try:
        found: object = point.load()
    except (ImportError, AttributeError) as error:
        raise DelegateError(f"delegate {point.name!r} ({point.value}) cannot be imported: {error}") from error
    return found


@cache  # A look at what all packages register takes as long as to import most delegates.
def _entry_point(name: str) -> EntryPoint:
    found = list(entry_points(group=ENTRY_POINT_GROUP, name=name))
    if len(found) > 1:
        # Which of them comes first depends on sys.path: results of two programs would share a name.
        places = ", ".join(sorted(point.value for point in found))
        raise DelegateError(f"delegate {name!r} is registered twice: {places}; uninstall all but one")
    if found:
        return found[0]
    known = delegate_names()
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise DelegateError(f"no delegate named {name!r}; known: {', '.join(known) or 'none'}{hint}")
