"""Plans a model on a delegate, and says what a result, or `farm submit --explain`, tells of it."""

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from agent.wire.profile import MAX_ADVICE, MAX_ADVISED, Advice, AdvicePiece, Explained, Profile
from runtime.delegates.descriptor import without_commit
from runtime.delegates.registry import delegate_descriptor, delegate_factory
from runtime.errors import DelegateError, FarmRuntimeError
from runtime.model.reader import load_model


def advice_of(path: str, kind: str, options: Mapping[str, Any]) -> Advice | None:
    """Return the advice on a model; None for a delegate that plans nothing, and where it cannot plan."""
    try:
        if not hasattr(delegate_factory(delegate_descriptor(kind)), "planner"):
            return None
        # Every measuring process imports this module, and most need none of the tools: a third of its start.
        tool = import_module("runtime.tools.model_plan")
        found = tool.suitability(tool.model_plan(load_model(path), tool.planner_of(kind, options)))
    except FarmRuntimeError:
        return None
    return Advice(
        verdict=found.verdict,
        text=found.text,
        to_change=len(found.operators),
        cpu_macs_share=found.cpu_share,
        pieces=tuple(
            AdvicePiece.like(piece, operators=piece.operators[:MAX_ADVISED])
            for piece in found.pieces[:MAX_ADVICE]
        ),
    )


def with_times(advice: Advice | None, profile: Profile) -> Advice | None:
    """Add to advice what its operators took in a profile, and the share of the CPU."""
    # Shares are of the whole model: operators for which the list has no room count, too.
    total = sum(one.time_ns for one in profile.operators) + profile.left_out_ns
    if advice is None or not total:
        return advice
    times = {one.index: one.time_ns for one in profile.operators}
    on_cpu = sum(one.time_ns for one in profile.operators if one.place == "cpu")
    pieces = [
        # An operator that is not listed ran faster than all that are: it adds nothing here.
        piece.model_copy(update={"ms": sum(times.get(i, 0.0) for i in piece.operators) / 1e6})
        for piece in advice.pieces
    ]
    return advice.model_copy(update={"cpu_time_share": on_cpu / total, "pieces": tuple(pieces)})


def explain(path: Path, kind: str, options: str) -> Explained:
    """Say what a delegate would run of a model, on this machine; `options`: its options as JSON."""
    total = len(load_model(str(path)).subgraphs[0].operators)
    try:
        given = without_commit(delegate_descriptor(kind), json.loads(options))
    except DelegateError as error:
        return Explained(delegated_ops=0, total_ops=total, reasons={}, obstacle=str(error))
    tool = import_module("runtime.tools.model_info.delegation")
    view = tool.delegate_view(kind, path, total, given)
    return Explained(
        delegated_ops=view.taken,
        total_ops=view.total,
        reasons=view.reasons,
        obstacle=view.obstacle,
        advice=advice_of(str(path), kind, given),
    )
