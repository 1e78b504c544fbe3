"""Finds which subgraphs call which, and refuses cycles, missing subgraphs and nesting too deep to plan."""

from runtime.errors import ModelError, UnsupportedOperatorError
from runtime.model.graph import Model, Operator, Subgraph
from runtime.ops.support.registry import find_spec

MAX_DEPTH = 32
"""Most subgraphs that may be running inside each other. Each takes several frames of Python's stack, in
planning and in running; 32 stay far below its limit of 1000, and models nest two or three."""


def check_calls(model: Model) -> None:
    """Raise `ModelError` where a subgraph reaches itself, calls a missing one, or nests too deep."""
    called = {s.index: _calls(model, s) for s in model.subgraphs}
    depth: dict[int, int] = {}
    # A depth-first walk with a stack of its own: a hostile file nests deeper than Python recurses.
    for start, first in called.items():
        path = [(start, iter(first))]
        while path:
            here, rest = path[-1]
            following = next((i for i in rest if i not in depth), None)
            if following is None:
                depth[here] = 1 + max((depth[i] for i in called[here]), default=0)
                path.pop()
                if depth[here] > MAX_DEPTH:
                    raise ModelError(f"subgraph {here}: its calls nest deeper than {MAX_DEPTH}")
            elif any(following == i for i, _ in path):
                circle = " → ".join(str(i) for i in (*(i for i, _ in path), following))
                raise ModelError(f"subgraphs call each other in a circle: {circle}")
            else:
                path.append((following, iter(called[following])))


def check_operators(model: Model, *, skip_first: bool) -> None:
    """Raise `UnsupportedOperatorError` for the first operator without a CPU kernel.

    `skip_first` leaves out the primary subgraph, where delegates may have it. Subgraphs that hold the checks
    of LiteRT's acceleration service are never run.
    """
    for subgraph in model.subgraphs[1 if skip_first else 0 :]:
        if not subgraph.name.startswith("VALIDATION:"):
            for operator in subgraph.operators:
                find_spec(operator)


def _calls(model: Model, subgraph: Subgraph) -> list[int]:
    found = []
    for operator in subgraph.operators:
        for index in called_by(operator):
            if not 0 <= index < len(model.subgraphs):
                raise ModelError(
                    f"subgraph {subgraph.index}, operator {operator.index} {operator.name}: calls subgraph "
                    f"{index} of {len(model.subgraphs)}"
                )
            found.append(index)
    return found


def called_by(operator: Operator) -> tuple[int, ...]:
    """Subgraphs that an operator may run."""
    try:
        names = find_spec(operator).subgraphs
    except UnsupportedOperatorError:
        return ()
    found: list[int] = []
    for name in names:
        value = operator.options[name]
        found += [value] if isinstance(value, int) else list(value)
    return tuple(found)
