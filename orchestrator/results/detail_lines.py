"""Explains a cell's figures in words: spread, init by stage."""

from collections.abc import Iterator, Mapping

from agent.wire.measurement import Measurement, Variation
from orchestrator.results import format as text
from orchestrator.results.cost_figures import INIT_STAGES
from orchestrator.results.metric import Metric
from orchestrator.results.metrics import METRICS, in_section
from orchestrator.results.records import CellRecord, tunings_of

_DIGEST_DIGITS = 12
"""Hex digits of an outcome's hash that are shown: enough to tell the tunings of one cell apart."""


def spread_lines(m: Measurement) -> Iterator[tuple[str, str]]:
    """Lines of a name and a text; none for results from before it was recorded."""
    v = m.variation
    if v is None:
        return
    if (tunings := tunings_of(m)) > 1:
        yield "interval over", text.counted(tunings, "tuning")
    else:
        # A block has one process; `variation` knows those of the last attempt alone.
        units = text.counted(len(m.blocks) or v.processes, "process", "es")
        yield "interval over", f"{units}{', given this tuning' if v.given_tuning else ''}"
    shares = (("samples", v.sample_sd), ("processes", v.process_sd), ("tunings", v.tuning_sd))
    known = [f"{name} {sd:.2%}" for name, sd in shares if sd is not None]
    if known:
        yield "varies by", f"{', '.join(known)} (standard deviation that each adds)"
    if advice := ", ".join(_advice(v)):
        yield "advice", advice
    for number, tuning in enumerate(m.tunings, 1):
        used = text.counted(tuning.processes, "process", "es")
        yield f"tuning {number}", f"{used}, sha256 {tuning.sha256[:_DIGEST_DIGITS]}"
        yield "", f"choices: {tuning.choices or 'too long to be an option'}"


def _advice(v: Variation) -> Iterator[str]:
    """Yield how often to repeat each level, by Kalibera and Jones; a level that adds nothing: once."""
    if v.rounds_advised is not None:
        yield f"{text.counted(v.rounds_advised, 'round')} of a block"
    elif v.process_sd == 0.0:
        yield "more rounds rather than blocks"
    if v.processes_advised is not None:
        yield f"{text.counted(v.processes_advised, 'block')} of a tuning"
    elif v.tuning_sd == 0.0:
        yield "more blocks rather than tunings"
    if v.units_advised is not None:
        unit = "tuning" if v.level == "tuning" else "block"
        yield f"{text.counted(v.units_advised, unit)} for an interval of 1 % to either side"


def stage_pairs() -> Mapping[str, tuple[Metric, Metric]]:
    """Return the cold and the warm figure of each stage, by the stage's name."""
    by_key = {metric.key: metric for metric in in_section("init")}
    return {name: (by_key[f"init_ms.cold.{name}"], by_key[f"init_ms.warm.{name}"]) for name in INIT_STAGES}


def count_pair() -> tuple[Metric, Metric]:
    """Return the metrics of the number of inits from which the cold and the warm figures are chosen."""
    by_key = {metric.key: metric for metric in METRICS}
    return by_key["init_ms.cold.n"], by_key["init_ms.warm.n"]


def init_lines(cell: CellRecord) -> Iterator[tuple[str, str]]:
    """Yield a line for each init, then why a stage is missing; none for a wrong output."""
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
