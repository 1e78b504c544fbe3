"""The ordered list of passes. Each is one function Graph → Graph in its own module."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from runtime.delegates.gpu.graph import Graph
from runtime.delegates.gpu.passes.assign_layouts import LayoutRules, assign_layouts
from runtime.delegates.gpu.passes.canonicalise import canonicalise
from runtime.delegates.gpu.passes.fold_scale import fold_scale
from runtime.delegates.gpu.passes.fold_transpose import fold_transpose
from runtime.delegates.gpu.passes.fuse_epilogue import fuse_epilogue
from runtime.delegates.gpu.passes.fuse_swish import fuse_swish
from runtime.delegates.gpu.passes.merge_padding import merge_padding
from runtime.delegates.gpu.passes.remove_identity import remove_identity

__all__ = ["LayoutRules", "optimise"]


def optimise(graph: Graph, rules: LayoutRules) -> Graph:
    """Run every pass, in order. `rules` says what the kernel families can do.

    Operators that are others in disguise go first, so that no later pass has to know them, then identities,
    as they hide neighbours from the patterns. SWISH and the scales are matched while their factors are still
    nodes of their own, which fusing into epilogues ends. Layouts come last: they depend on which nodes are
    left.
    """
    passes: tuple[Callable[[Graph], Graph], ...] = (
        canonicalise,
        remove_identity,
        merge_padding,
        fuse_swish,
        fold_scale,
        fold_transpose,
        partial(fuse_epilogue, fusable=rules.applies_epilogue),
        partial(assign_layouts, rules=rules),
    )
    for one_pass in passes:
        graph = one_pass(graph)
    return graph
