"""Measures the cost of the sandbox: models of the demo with and without it, in fresh processes, interleaved.

python -m benchmarks.sandbox [--minutes 9] [--rounds 12] [--models ID ...] [--delegates KIND ...] [--out FILE]

Rounds begin until there are `--rounds` of them or `--minutes` are over. In each, every model runs on every
delegate that takes it, once with the sandbox and once without, in random order, each as an attempt of the
product's own agent with one cold process, so that `init` includes programs that are compiled and files that
are opened.
The result is the ratio with / without, estimated over rounds as the farm estimates over blocks: the cost is
inside the noise where the interval contains 1.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.wire.messages import JobResult, Status
from agent.wire.plan import MeasurePlan
from benchmarks.interleaved import ends, ratio
from benchmarks.output import RESULTS, parser, table, write_report
from orchestrator.manifest.load import load_manifest
from orchestrator.sources.resolve import resolve
from orchestrator.sources.store import Store
from runtime.common.statistics import MIN_UNITS
from tests.agent.embedded_agent import EmbeddedAgent, job
from tests.needs import REPOSITORY
from tests.tree import tree

FIGURES = ("init", "p50", "memory")
ARMS = ("with", "without")
MODELS = (
    "torchvision_mobilenet_v3_small", "torchvision_mobilenet_v2", "torchvision_mobilenet_v2__static_int8",
)  # fmt: skip
"""Models of the demo that the zoo contains: small ones, in whose short runs a cost would show first."""


def main() -> None:
    """Measure, and write the figures as JSON and as Markdown."""
    given, began = _options(), tree()
    with tempfile.TemporaryDirectory(prefix="farm-sandbox-") as name:
        found = measured(Path(name), given)
    lines = page(found)
    write_report(given.out, found, lines, began)
    print("\n".join(lines))


def measured(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Return the ratios by model, delegate and figure."""
    until_s = time.monotonic() + 60 * given.minutes
    agents = {arm: EmbeddedAgent(folder, state=arm, sandbox={"on": arm == "with"}) for arm in ARMS}
    plan = MeasurePlan(
        min_blocks=1, max_blocks=1, warmup_runs=3, warmup_seconds=0.0, rounds=1, slice_runs=30,
        slice_seconds=given.seconds,
    )  # fmt: skip
    models = stored(folder / "store", given.models)
    cells = [(model, delegate) for model in models for delegate in given.delegates]
    figures: dict[tuple[str, str, str, str], list[float]] = {}
    chance = random.Random(0)  # noqa: S311  # an order of arms, not a secret
    said = ""
    try:
        hosts = {
            delegate: device.device_id
            for device in agents["with"].hello.devices
            for delegate in device.delegates
        }
        rounds = 0
        # An interval needs `MIN_UNITS` rounds, however long they take.
        while rounds < given.rounds and (rounds < MIN_UNITS or time.monotonic() < until_s):
            rounds += 1
            for model, delegate in list(cells):
                for arm in chance.sample(ARMS, len(ARMS)):
                    spec = job(models[model], delegate, hosts[delegate], plan=plan, model_id=model)
                    result = agents[arm].run(spec)
                    if result.status is Status.UNSUPPORTED:
                        cells.remove((model, delegate))
                        break
                    said = result.facts["sandbox"] if arm == "with" else said
                    for figure, value in _figures(result).items():
                        figures.setdefault((model, delegate, figure, arm), []).append(value)
    finally:
        for agent in agents.values():
            agent.close()
    rows = [
        {
            "model": model,
            "delegate": delegate,
            **{figure: ratio(*(figures[model, delegate, figure, arm] for arm in ARMS)) for figure in FIGURES},
        }
        for model, delegate in cells
    ]
    return {"rounds": rounds, "sandbox": said, "rows": rows}


def page(found: dict[str, Any]) -> list[str]:
    """Return the lines of the report: the ratios as a table."""
    return [
        "# The cost of the sandbox of runners",
        "",
        f"`python -m benchmarks.sandbox`: with / without, {found['rounds']} rounds (95 % interval).",
        f"The sandbox: {found['sandbox']}.",
        "",
        *table(
            ("model", "delegate", "init", "p50", "peak memory"),
            (
                (row["model"], row["delegate"],
                 *(f"{row[figure]['ratio']:.3f} ({ends(row[figure])})" for figure in FIGURES))
                for row in found["rows"]
            ),
        ),
    ]  # fmt: skip


def _figures(result: JobResult) -> dict[str, float]:
    """Return init and p50 in milliseconds and the growth of resident memory in bytes, of one attempt."""
    assert result.status is Status.DONE, result.reason
    assert result.measurement is not None
    latency, peak_bytes = result.measurement.latency_ms, result.measurement.memory_peak_cold_bytes
    assert latency.init is not None
    assert latency.p50 is not None
    # Not 0: ratios are formed by logarithms.
    return {"init": latency.init, "p50": latency.p50, "memory": float(max(1, peak_bytes))}


def stored(folder: Path, models: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Bring models of the demo into a store; their hashes and sizes by id."""
    manifest = REPOSITORY / "examples/models.yaml"
    entries = {entry.id: entry for entry in load_manifest(manifest).models}
    found = (resolve(entries[model], Store(folder), manifest.parent) for model in models)
    return {model.id: (model.sha256, model.size_bytes) for model in found}


def _options() -> argparse.Namespace:
    options = parser(__doc__, RESULTS / "sandbox.json")
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--seconds", type=float, default=0.5, help="timed seconds of an attempt (0.5)")
    options.add_argument("--minutes", type=float, default=9.0, help="begin no round after these (9)")
    options.add_argument("--models", nargs="+", default=list(MODELS))
    options.add_argument("--delegates", nargs="+", default=["cpu", "litert", "gpu"])
    return options.parse_args()


if __name__ == "__main__":
    main()
