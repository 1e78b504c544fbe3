"""Shared parts of the farm's benchmarks: order statistics, the local PostgreSQL, and the report."""

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.output import write_figures
from runtime.measure.samples.summary import percentile


@dataclass(frozen=True, slots=True)
class Spread:
    """Milliseconds."""

    p50: float
    p99: float
    longest: float
    count: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Spread":
        """Order statistics; zeros where nothing was seen."""
        if not seconds:
            return cls(0.0, 0.0, 0.0, 0)
        p50, p99, longest = (round(percentile(seconds, q) * 1e3, 3) for q in (0.5, 0.99, 1.0))
        return cls(p50, p99, longest, len(seconds))


def postgres_binaries() -> Path:
    """Return the folder of the PostgreSQL on the path, or of the newest that Debian installed here."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    newest = shutil.which("postgres") or (found[-1] if found else None)
    if newest is None:
        raise SystemExit("no PostgreSQL here; install it, or give --database sqlite or a URL")
    # Behind any link, since PostgreSQL's other programs lie beside the file itself.
    return Path(newest).resolve().parent


def report(measure: Callable[[Path], dict[str, Any]], out: Path | None) -> int:
    """Measure in a folder of its own; print the figures as JSON and, where `out` says so, write them."""
    folder = Path(tempfile.mkdtemp(prefix="farm-bench-"))
    try:
        figures = measure(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    write_figures(out, figures)
    print(json.dumps(figures, indent=1))
    return 0
