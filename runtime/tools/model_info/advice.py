"""Measurements that recommend runners for a kind of model: one file of the kind on each, with source.

`measured.json` is written by `benchmarks/model_kinds.py`. It holds for the machine that it names; a campaign
measures the user's own.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from runtime.model.facts import Kind

_SAME_AS: Final[dict[Kind, Kind]] = {"quantisation-aware": "integer"}
"""A quantisation-aware graph runs as what its conversion makes of it."""

_NOTES: Final[dict[Kind, str]] = {
    "float32": "every delegate computes it in single precision",
    "fp16 weights": "half the file; weights become float32 once, at load, and run as a float32 model",
    "dynamic-range": "a quarter of the file; activations stay float32, their rows are quantised at each call",
    "integer": "a quarter of the file; exact integer arithmetic on the cpu, equal on every machine",
    "quantisation-aware": "FAKE_QUANT marks a graph in training: convert it, and it runs as an integer model",
    "mixed": "several kinds in one file; each operator suits what its own kind suits",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """One call of `model`: milliseconds by runner; `refused` are the runners that cannot run it."""

    model: str
    milliseconds: dict[str, float]
    refused: tuple[str, ...]
    machine: str
    threads: int
    source: str


@dataclass(frozen=True, slots=True)
class Advice:
    """The recommendation for a kind. `measured` is None if nothing of the kind has been measured."""

    kind: Kind
    note: str
    measured: Measured | None

    @property
    def order(self) -> tuple[str, ...]:
        """The measured runners, fastest first."""
        found = self.measured.milliseconds if self.measured else {}
        return tuple(sorted(found, key=lambda name: found[name]))


def advice_for(kind: Kind) -> Advice:
    """Return what was measured to suit models of this kind."""
    recorded = _recorded()
    row = next((r for r in recorded["rows"] if r["kind"] == _SAME_AS.get(kind, kind)), None)
    measured = row and Measured(
        model=row["model"],
        milliseconds=row["milliseconds"],
        refused=tuple(row["refused"]),
        machine=recorded["machine"],
        threads=recorded["threads"],
        source=recorded["source"],
    )
    return Advice(kind, _NOTES[kind], measured)


@cache
def _recorded() -> dict[str, Any]:
    text = files("runtime.tools.model_info").joinpath("measured.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
