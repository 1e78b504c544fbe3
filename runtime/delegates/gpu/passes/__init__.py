"""The ordered list of passes. Each is one function Graph → Graph in its own module."""

from collections.abc import Callable, Set
from dataclasses import dataclass
from functools import partial

from runtime.delegates.gpu.graph.graph import Graph
from runtime.delegates.gpu.passes.assign_layouts import LayoutRules, assign_layouts
from runtime.delegates.gpu.passes.canonicalise import canonicalise
from runtime.delegates.gpu.passes.fold_scale import fold_scale
from runtime.delegates.gpu.passes.fold_transpose import fold_transpose
from runtime.delegates.gpu.passes.fuse_epilogue import fuse_epilogue
from runtime.delegates.gpu.passes.fuse_levels import fuse_levels
from runtime.delegates.gpu.passes.fuse_norms import fuse_norms
from runtime.delegates.gpu.passes.fuse_swish import fuse_swish
from runtime.delegates.gpu.passes.hoist_transpose import hoist_transpose
from runtime.delegates.gpu.passes.join_moves import join_moves
from runtime.delegates.gpu.passes.merge_padding import merge_padding
from runtime.delegates.gpu.passes.remove_identity import remove_identity

__all__ = ["LayoutRules", "Pass", "optimise", "passes"]


@dataclass(frozen=True, slots=True)
class Pass:
    """One rewriting. `effect` says what becomes of an operator that it merges into another one or removes."""

    run: Callable[[Graph], Graph]
    effect: str

    @property
    def name(self) -> str:
        """The function's name, which is its module's."""
        function = self.run.func if isinstance(self.run, partial) else self.run
        return str(function.__name__)


def passes(rules: LayoutRules, off: Set[str] = frozenset()) -> tuple[Pass, ...]:
    """Every pass but those named in `off`, in order. `rules` says what the kernel families can do.

    Operators that are others in disguise go first, so that no later pass has to know them, then chains of
    moves and identities, as they hide neighbours from the patterns. Norms, SWISH and the scales are matched
    while their factors are still nodes of their own, which fusing into epilogues ends. Layouts come last:
    they depend on which nodes are left. Without the first and the last there would be nodes and values that
    no kernel knows.
    """
    every = (
        Pass(canonicalise, "nothing reads what it makes"),
        Pass(hoist_transpose, "its operands are transposed instead, together with the moves that made them"),
        Pass(join_moves, "one copy moves the elements of a chain of moves, or none where they come back"),
        Pass(remove_identity, "it changes nothing, and its readers read its operand"),
        Pass(merge_padding, "the window's own padding does it"),
        Pass(fuse_norms, "the norm over the channels is one kernel"),
        Pass(fuse_swish, "x * LOGISTIC(x) is one step"),
        Pass(fuse_levels, "one table has the results of both"),
        Pass(fold_scale, "the convolution scales the rows of its weights"),
        Pass(fold_transpose, "the product reads its operand with other strides"),
        Pass(
            partial(fuse_epilogue, fusable=rules.applies_epilogue),
            "a step of the epilogue, on results that are still in registers",
        ),
        Pass(partial(assign_layouts, rules=rules), "a view: its result lies where its operand was written"),
    )
    return tuple(one for one in every if one.name not in off)


def optimise(graph: Graph, rules: LayoutRules, off: Set[str] = frozenset()) -> Graph:
    """Run every pass but those named in `off`, in order."""
    for one in passes(rules, off):
        graph = one.run(graph)
    return graph
