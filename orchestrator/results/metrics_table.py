"""Writes `docs/metrics.md` from the registry: every figure, its key, unit and meaning.

python -m orchestrator.results.metrics_table docs/metrics.md     writes the file
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator.results import metrics

_HEAD = """# Figures

Written by `python -m orchestrator.results.metrics_table docs/metrics.md` from the registry
(`orchestrator/results/metrics.py`); a test fails when it is stale. The key is the path in the JSON of
[results-format.md](results-format.md) and the column in CSV; how each figure is measured, and when it is
refused, is in [measuring.md](measuring.md).

| figure | key | unit | better | meaning |
|---|---|---|---|---|
"""


def metrics_table() -> str:
    """Return the whole file."""
    return _HEAD + "".join(
        f"| {m.label} | `{m.key}` | {m.unit} | {m.better} | {m.help} |\n" for m in metrics.METRICS
    )


def main(arguments: Sequence[str]) -> int:
    """Write the table to the file that is named."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m orchestrator.results.metrics_table FILE\n")
        return 2
    Path(arguments[0]).write_text(metrics_table(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
