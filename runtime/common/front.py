"""Pareto's front: which of several alternatives no other one beats."""

from __future__ import annotations

from collections.abc import Sequence

Costs = Sequence[float | None]
"""Costs of one alternative, the same ones for all; None where one is not known."""


def on_front(alternatives: Sequence[Costs]) -> tuple[bool, ...]:
    """Return for each alternative whether no other is at least as cheap in all and cheaper in something.

    A cost that one of two lacks does not decide between them.
    """
    return tuple(not any(_beats(other, one) for other in alternatives) for one in alternatives)


def _beats(a: Costs, b: Costs) -> bool:
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)
