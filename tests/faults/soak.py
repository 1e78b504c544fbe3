"""Random faults against a working lab, as root: `python -m tests.faults.soak --minutes 10`.

Campaigns keep two agents busy; at Poisson times a fault happens. At the end everything is healed, every cell
must end, and the invariants are held against the runners' own records. The report goes to
`benchmarks/results/soak.md`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import needs
from tests.faults import invariants
from tests.faults.lab import FaultLab
from tests.faults.nemesis import FAULTS
from tests.needs import REPOSITORY
from tests.reports import write_report
from tests.services.network import Network
from tests.services.postgres import PostgresCluster
from tests.services.redis import RedisServer
from tests.tree import tree

REPORT = REPOSITORY / "benchmarks/results/soak.md"
MEAN_PAUSE_S = 6.0
FEW_CELLS = 20
DELEGATES = {
    "steady": {"seconds": 0.3},
    "slow": {"seconds": 1.5},
    "shaky": {"seconds": 0.2, "behave": "crash", "first_only": True},
    "poison": {"seconds": 0.1, "behave": "crash"},
    "lacking": {"seconds": 0.1, "behave": "unsupported"},
}


@contextmanager
def standing_lab(folder: Path, seed: int) -> Iterator[FaultLab]:
    """Start a lab of its own, removed at the end."""
    network = Network(folder)
    for name in ("services", "server", "agA", "agB"):
        network.add(name)
    node = network.nodes["services"]
    redis = RedisServer(folder / "redis", address=node.address, enter=node.command).start()
    postgres = PostgresCluster(
        folder / "postgres", needs.postgres_binaries(), address=node.address, enter=node.command
    )
    postgres.create().start()
    lab = FaultLab(folder / "lab", network, redis, seed, postgres, postgres.new_database())
    try:
        yield lab
    finally:
        lab.network.heal()
        lab.close()
        redis.kill()
        postgres.stop("immediate")
        network.close()


def soak(lab: FaultLab, minutes: float) -> tuple[Counter[str], list[str]]:
    """Do it; what happened how often, and every breach of an invariant."""
    lab.start()
    happened: Counter[str] = Counter()
    until = time.monotonic() + 60 * minutes
    while time.monotonic() < until:
        if len(lab.view.open_cells()) < FEW_CELLS:
            _submit(lab)
        time.sleep(lab.chance.expovariate(1 / MEAN_PAUSE_S))
        fault = lab.chance.choice(FAULTS)
        said = fault(lab)
        happened[fault.__name__] += 1
        sys.stdout.write(f"{time.strftime('%H:%M:%S')} {said}; cells: {dict(lab.view.counts())}\n")
        sys.stdout.flush()
    lab.network.heal()
    try:
        lab.finish(limit_s=120)
    except AssertionError as error:
        return happened, str(error).splitlines()
    return happened, []


def _submit(lab: FaultLab) -> None:
    """Submit a campaign; if the database is away just now, the next round submits."""
    submitting = lab.start_submitting(lab.chance.randrange(2, 5), **DELEGATES)
    _told, errors = submitting.communicate(timeout=60)
    if submitting.returncode != 0:
        sys.stdout.write(f"not submitted: {errors.strip().splitlines()[-1]}\n")


def report(lab: FaultLab, minutes: float, happened: Counter[str], broken: list[str]) -> str:
    """Return the result as Markdown."""
    cells, attempts = lab.view.counts(), lab.view.reasons()
    faults = "\n".join(f"| {name} | {count} |" for name, count in sorted(happened.items()))
    ends = "\n".join(f"| {state} | {reason} | {n} |" for (state, reason), n in sorted(attempts.items()))
    checked = ", ".join([*invariants.CHECKS, "I9"])
    return (
        f"# Soak: random faults for {minutes:g} minutes\n\nSeed {lab.seed}. {sum(happened.values())} faults, "
        f"{sum(cells.values())} cells: {', '.join(f'{n} {state}' for state, n in sorted(cells.items()))}.\n\n"
        f"**Violations: {len(broken)}** (checked: {checked}).\n\n"
        + "".join(f"- {line}\n" for line in broken)
        + f"\n| fault | times |\n|---|---|\n{faults}\n\n"
        + f"| attempts ended | reason | times |\n|---|---|---|\n{ends}\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--report", type=Path, default=REPORT)
    given = parser.parse_args()
    began = tree()
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        standing_lab(Path(folder), given.seed) as lab,
    ):
        happened, broken = soak(lab, given.minutes)
        text = report(lab, given.minutes, happened, broken)
    write_report(given.report, text, began, 1 if broken else 0)
    sys.stdout.write(f"{text}\nsoak: {sum(happened.values())} faults, {len(broken)} violations\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
