"""Sweeps over like cases: a few in the default suite, all of them in the exhaustive one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def rarely(*values: Any) -> Any:
    """Return a case, by its values, of the exhaustive suite alone: it differs from others in degree."""
    return pytest.param(*values, marks=pytest.mark.exhaustive)


def slowly(*values: Any) -> Any:
    """Return a case, by its values, of the slow suite: it takes seconds, and a like one always runs."""
    return pytest.param(*values, marks=pytest.mark.slow)


def sweep(cases: Iterable[Any], *often: str) -> list[Any]:
    """Return the cases with their texts as ids; those not named in `often` are run rarely.

    Raises LookupError for a name that no case has.
    """
    named = [(str(case), case) for case in cases]
    if unknown := set(often).difference(name for name, _ in named):
        raise LookupError(f"no case is called {', '.join(sorted(unknown))}")
    rare = pytest.mark.exhaustive
    return [pytest.param(case, id=name, marks=() if name in often else rare) for name, case in named]
