"""Says in words what each stage takes of an init; pairs the figures of the cold and of the warm one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.results.metric import Metric
from orchestrator.results.metrics import INIT_STAGES, METRICS, in_section
from orchestrator.results.records import CellRecord


def stage_pairs() -> Mapping[str, tuple[Metric, Metric]]:
    """The cold and the warm figure of each stage, by the stage's name."""
    by_key = {metric.key: metric for metric in in_section("init")}
    return {name: (by_key[f"init_ms.cold.{name}"], by_key[f"init_ms.warm.{name}"]) for name in INIT_STAGES}


def count_pair() -> tuple[Metric, Metric]:
    """How many inits the cold and the warm figures are chosen from."""
    by_key = {metric.key: metric for metric in METRICS}
    return by_key["init_ms.cold.n"], by_key["init_ms.warm.n"]


def init_lines(cell: CellRecord) -> Iterator[tuple[str, str]]:
    """A line for each init of a name and a text, then why a stage is missing; none for a wrong output."""
    m = cell.measurement
    if m is None or cell.struck_out:
        return
    for place, (name, stages) in enumerate((("cold", m.init.cold), ("warm", m.init.warm))):
        if stages is None:
            continue
        shown = [(stage, pair[place]) for stage, pair in stage_pairs().items()]
        known = [
            f"{stage} {metric.short_text(cell)}" for stage, metric in shown if metric.read(cell) is not None
        ]
        yield "init by stage", f"{name}, of {stages.n}: {', '.join(known)} ms"
    reasons: dict[str, list[str]] = {}
    for stage, why in m.init.missing.items():
        reasons.setdefault(why, []).append(stage)
    yield from (("", f"no {', '.join(stages)}: {why}") for why, stages in reasons.items())
