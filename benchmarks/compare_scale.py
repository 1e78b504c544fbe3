"""Times `farm compare A B` on two campaigns of 10,000 measured cells, as a user waits for it.

    .venv/bin/python -m benchmarks.compare_scale [--cells 10000] [--rounds 5] [--out FILE]

The cells have results as agents send them: figures of five processes with their interval, what a delegate
says of itself, the signals of trust, and for one of the two delegates the ratio over the other by blocks. The
farm's own code writes them into SQLite. The whole process is timed, from its start to its last line, and the
processor time that it takes. The mark is 2 s.
"""

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from statistics import median

from sqlmodel import select

from agent.wire.measurement import Delegation, Measurement, Quality, Ratio, Variation, baseline_id
from benchmarks.output import RESULTS, parser, write_figures
from orchestrator.db import tables
from orchestrator.db.cells import attempts
from orchestrator.db.engine.sessions import Database
from orchestrator.db.scheduling import ingest
from orchestrator.policy.assign import Assignment
from tests.orchestrator.asked import asked
from tests.orchestrator.stocked import measured, new_database, result, stock

FARM = str(Path(sys.executable).with_name("farm"))

_TURN_CELLS = 500
"""Cells whose results are stored in one transaction. More take more memory, fewer more commits."""

_SEEN = tuple(f"a signal of trust, number {number}" for number in range(13))
_UNSEEN = tuple(f"a signal that this machine lacks, number {number}: why" for number in range(5))

_SEED = 1
"""Of the times that the cells take, so that both campaigns, and each run of this, have the same."""


def main() -> int:
    """Fill a home, time, print, write."""
    options = parser(__doc__, RESULTS / "compare_scale.json")
    options.add_argument("--cells", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="farm-compare-") as folder:
        with closing(new_database(Path(folder))) as database:
            fill(database, given.cells // 2, ("monday", "tuesday"))
        took = [seconds(folder, "compare", "monday", "tuesday") for _ in range(given.rounds)]
    elapsed, busy = (sorted(one[place] for one in took) for place in (0, 1))
    figures = {"cells": given.cells, "compare_s": elapsed, "compare_cpu_s": busy}
    write_figures(given.out, figures)
    print(
        f"farm compare: {median(elapsed):.2f} s (all: {elapsed[0]:.2f} to {elapsed[-1]:.2f}), "
        f"{median(busy):.2f} s of processor time"
    )
    return 0


def fill(database: Database, models: int, campaigns: Iterable[str], columns: int = 2) -> None:
    """Store campaigns of `models` on delegates, all measured: a baseline, and others in as many columns."""
    names = tuple(f"model-{number}" for number in range(models))
    delegates = {"cpu": {}} | {f"gpu-{number}": {"kind": "gpu"} for number in range(1, columns)}
    queued = select(tables.Cell.cell_id).where(tables.Cell.state == "queued")
    for number, name in enumerate(campaigns):
        figures = _measurements(f"{name} {number}")
        stock(database, asked(names, delegates, name=name, reuse="never", baseline="cpu"))
        with database.read() as session:
            # Read to the end first: storing a result takes its cell out of what is queued.
            waiting = list(session.exec(queued))
        for begin in range(0, len(waiting), _TURN_CELLS):
            _measure(database, waiting[begin : begin + _TURN_CELLS], figures)


def _measure(database: Database, cell_ids: list[str], figures: Iterator[Measurement]) -> None:
    now = datetime.now(UTC)
    with database.write() as turn:
        for cell_id in cell_ids:
            cell = turn.cell(cell_id)
            job = attempts.begin(turn, Assignment(cell_id, cell.target), now)
            assert attempts.start(turn, job.attempt_id, job.epoch, now)
            message = result(job).model_copy(update={"measurement": next(figures)})
            assert ingest.apply(turn, message, now) == "counted"


def _measurements(day: str) -> Iterator[Measurement]:
    """Yield measurements that differ by 2 % from day to day, a hundredth of them by a fifth more."""
    base, days = random.Random(_SEED), random.Random(day)  # noqa: S311  # times, no secrets
    for number in count():
        changed = 1.2 if days.random() < 0.01 else 1.0
        p50 = base.lognormvariate(1, 1) * days.lognormvariate(0, 0.02) * changed
        yield _measurement(p50, days.uniform(0.005, 0.05), paired=number % 2 == 1)


def _measurement(p50: float, half: float, *, paired: bool) -> Measurement:
    """About 3 kB as JSON, as the results of real models have."""
    made = measured(p50)
    latency = made.latency_ms.model_copy(update={"ci95": (p50 * (1 - half), p50 * (1 + half))})
    ratio = Ratio(
        against="cpu@host-cpu", baseline_id=baseline_id("cpu", {}), device_id="host-cpu", median=1.2,
        ci95=(1.1, 1.3), blocks=5, seed=1,
    )  # fmt: skip
    variation = Variation(
        level="process", given_tuning=True, tunings=1, processes=5, sample_sd=half, process_sd=half,
        tuning_sd=None, sample_s=p50 / 1e3, process_s=2.6, tuning_s=8.1, samples_advised=49,
        processes_advised=None, units_advised=790,
    )  # fmt: skip
    settings = {f"setting_{number}": "what the delegate says of itself" for number in range(24)}
    return made.model_copy(
        update={
            "latency_ms": latency,
            "settings": settings | {"processes": "5"},
            "quality": Quality(seen=_SEEN, unseen=_UNSEEN),
            "ratio": ratio if paired else None,
            "variation": variation,
            "delegation": Delegation(status="full", delegated_ops=164, total_ops=164, partitions=1),
        }
    )


def seconds(home: str, *arguments: str) -> tuple[float, float]:
    """Return the seconds that a command takes: by the clock, and of processors."""
    # Of all children that were waited for: the difference is what this command used.
    used, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        [FARM, *arguments], env=os.environ | {"FARM_HOME": home}, check=True, stdout=subprocess.DEVNULL
    )
    elapsed, now = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return elapsed, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime


if __name__ == "__main__":
    raise SystemExit(main())
