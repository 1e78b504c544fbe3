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

_NOTES: Final[dict[Kind, str]] = {
    "float32": "every delegate computes it in single precision",
    "fp16 weights": "half the file; weights become float32 once, at load, and run as a float32 model",
    "dynamic-range": "a quarter of the file; activations stay float32, their rows are quantised at each call",
    "integer": "a quarter of the file; exact integer arithmetic on the cpu, equal on every machine",
    "quantisation-aware": "FAKE_QUANT marks a graph in training: convert it, and it runs as an integer model",
    "mixed": "several kinds in one file; each operator suits what its own kind suits",
}


KINDS: Final = tuple(kind for kind in _NOTES if kind != "mixed")
"""The kinds of files that are measured; a mixed one suits what its parts suit."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One call of `model`: milliseconds by runner.

    `partial`: the operators that a delegate took, where it left some to the CPU; `refused`: why a runner gave
    no figure.
    """

    model: str
    milliseconds: dict[str, float]
    partial: dict[str, str]
    refused: dict[str, str]
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
    row = next((r for r in recorded["rows"] if r["kind"] == kind), None)
    measured = row and Measured(
        model=row["model"],
        milliseconds=row["milliseconds"],
        partial=row["partial"],
        refused=row["refused"],
        machine=recorded["machine"],
        threads=recorded["threads"],
        source=recorded["source"],
    )
    return Advice(kind, _NOTES[kind], measured)


def measured_kinds() -> tuple[Advice, ...]:
    """Return what was measured of every kind that has been."""
    return tuple(advice_for(row["kind"]) for row in _recorded()["rows"])


@cache
def _recorded() -> dict[str, Any]:
    text = files("runtime.tools.model_info").joinpath("measured.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
