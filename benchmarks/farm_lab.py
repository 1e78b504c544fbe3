"""Devices of a lab through real Celery and Redis: how long does a device stand idle between two cells?

    .venv/bin/python -m benchmarks.farm_lab                        (50 devices of 5 agents, 1,000 cells)
    .venv/bin/python -m benchmarks.farm_lab --devices 4 --agents 2 --cells 8 --seconds 0.2

`farm lab serve`, `farm-agent start` with their links, Redis and PostgreSQL are the production programs; only
the runner measures nothing (`farm_runner.py`): it waits about `--seconds`, notes its beginning and its end.
The gap is from the end of one runner to the moment the agent has the next one's job written, cool-down 0; the
start of the runner's process is reported separately. The mark: 50 ms at the median, 250 ms at the
99th percentile. `--out FILE` writes the figures as JSON.
"""

import argparse
import json
import os
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from agent.processes.sandbox.boundary import WRITE_VARIABLE
from benchmarks.farm_figures import Spread, postgres_binaries, report
from benchmarks.output import parser
from tests.faults.lab import FaultLab, until
from tests.services.postgres import PostgresCluster
from tests.services.redis import RedisServer

RUNNER = Path(__file__).with_name("farm_runner.py")


@dataclass(frozen=True)
class LocalNode:
    """This machine, under the name of one of the lab's."""

    name: str
    address: str = "127.0.0.1"

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command unchanged."""
        return list(command)


@dataclass(frozen=True)
class LocalNetwork:
    """A lab of which every machine is this one."""

    nodes: dict[str, LocalNode]


def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One campaign; its figures."""
    postgres = _LocalPostgres(folder / "pg", postgres_binaries(), settings=("shared_buffers = 256MB",))
    postgres.create().start()
    redis = RedisServer(folder / "redis", address="127.0.0.1", port=_free_port()).start()
    names = [f"rack-{number}" for number in range(given.agents)]
    network: Any = LocalNetwork({name: LocalNode(name) for name in ("server", *names)})
    lab = FaultLab(folder / "lab", network, redis, 1, postgres, postgres.new_database(), times={})
    try:
        return _measure(lab, given, names)
    finally:
        lab.close()
        redis.kill()
        # Without a checkpoint: nobody reads this database again.
        postgres.stop("immediate")


class _LocalPostgres(PostgresCluster):
    """A PostgreSQL that every process reaches over its socket."""

    def url(self, database: str) -> str:
        """Return the URL as `socket_url` does."""
        return self.socket_url(database)


def _measure(lab: FaultLab, given: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    lab.start_server()
    for index, name in enumerate(names):
        count = given.devices // given.agents + (index < given.devices % given.agents)
        agent = lab.add_agent(name, devices=count)
        gaps = agent.state / "gaps.jsonl"
        # A runner's sandbox grants a path only where it exists already.
        gaps.touch()
        agent.start(FAULT_RUNNER=str(RUNNER), **{WRITE_VARIABLE: str(gaps)})
    lab.until_heard(*names)
    # From here on: what the agents and their devices said at their start is no cost of cells.
    before, since = _traffic(lab.redis), time.monotonic()
    # Each model gives one cell on every device.
    models = -(-given.cells // given.devices)
    lab.submit(models, gpu={"seconds": given.seconds})
    cells = models * given.devices
    until(lambda: lab.view.counts()["done"] >= cells, "every cell is done", given.limit)
    taken_s, after = time.monotonic() - since, _traffic(lab.redis)
    gaps, starts = _gaps(agent.state / "gaps.jsonl" for agent in lab.agents.values())
    return {
        "devices": given.devices,
        "agents": given.agents,
        "cells": cells,
        "cell_seconds": given.seconds,
        "idle_gap_ms": asdict(Spread.of(gaps)),
        "runner_start_ms": asdict(Spread.of(starts)),
        "broker_bytes_per_cell": {name: round((after[name] - before[name]) / cells) for name in after},
        "attempts_per_cell": round(len(lab.view.attempts()) / cells, 3),
        "seconds": round(taken_s, 1),
        "load_average_1_min": round(os.getloadavg()[0], 2),
    }


def _gaps(logs: Iterable[Path]) -> tuple[list[float], list[float]]:
    """Seconds from a runner's end to the next job on its device, and from there to its first statement."""
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for log in logs:
        for text in log.read_text().splitlines():
            line = json.loads(text)
            lines[line["device"]].append(line)
    gaps, starts = [], []
    for found in lines.values():
        found.sort(key=lambda line: line["began"])
        starts += [(line["began"] - line["asked"]) / 1e9 for line in found]
        gaps += [(after["asked"] - before["ended"]) / 1e9 for before, after in pairwise(found)]
    return gaps, starts


def _traffic(redis: RedisServer) -> dict[str, int]:
    with redis.client() as client:
        told = client.info("stats")
    return {"in": told["total_net_input_bytes"], "out": told["total_net_output_bytes"]}


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> int:
    """Run, print, write."""
    options = parser(__doc__)
    options.add_argument("--devices", type=int, default=50)
    options.add_argument("--agents", type=int, default=5)
    options.add_argument("--cells", type=int, default=1000)
    options.add_argument("--seconds", type=float, default=5.0, help="how long a cell takes on average")
    options.add_argument("--limit", type=float, default=900.0, help="seconds after which the run has failed")
    given = options.parse_args()
    return report(lambda folder: run(given, folder), given.out)


if __name__ == "__main__":
    sys.exit(main())
