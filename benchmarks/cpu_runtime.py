"""The CPU path beside LiteRT at one thread: speed, overhead per operator, memory, loading.

    python -m benchmarks.cpu_runtime [--models GLOB ...] [--out JSON] [option of `farm submit` ...]

Over all real models, the whole zoo of `../shared/models`, and two models that differ only in how large their
weights are: a campaign of `cpu`, the baseline, and LiteRT's kernels. What is measured already is reused, so
that the same command goes on where it was stopped. Writes results/cpu_runtime.{json,md}. The machine must run
nothing else.
"""

import fnmatch
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks import output
from benchmarks.campaign import environment, submit
from benchmarks.cpu_report import LOADED, OURS, PEERS, marks, page
from runtime.model.facts import kind_of
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator, TensorType
from tests.models.collection import collection, manifest, real_model, zoo, zoo_model
from tests.needs import shared_models
from tests.runtime.models import Builder
from tests.tree import tree

LOAD_LAYERS: Final = 10
"""Products of the models for loading, each with weights of its own."""

LOAD_WIDTHS: Final = dict(zip(LOADED, (256, 2560), strict=True))
"""Channels of their products: 2.5 MB and 250 MB of weights."""

MEASURE: Final = {"blocks": 3, "rounds": 3, "slice": {"min_runs": 1}, "warmup": {"runs": 1}}
"""Counts of a cell: the reference kernels take minutes for an invoke of the largest models."""


def main() -> int:
    """Measure every chosen model, then write the table and the marks."""
    parser = output.parser(__doc__, output.RESULTS / "cpu_runtime.json")
    parser.add_argument("--models", nargs="*", default=["*"], metavar="GLOB", help="names to measure")
    args, options = parser.parse_known_args()
    began = tree()
    with tempfile.TemporaryDirectory(prefix="farm-cpu-") as folder:
        sources = _sources(Path(folder))
        chosen = [name for name in sources if any(fnmatch.fnmatch(name, glob) for glob in args.models)]
        status, cells = submit(campaign({name: sources[name] for name in chosen}), options)
    report: dict[str, Any] = {"environment": environment(), "rows": []}
    for name in chosen:
        by_delegate = {cell["delegate"]: cell for cell in cells if cell["model"] == name}
        report["rows"].append({"model": name, **_facts(name), "cells": by_delegate})
    output.write_report(args.out, report, page(report), began, status)
    print("\n".join(marks(report["rows"])))
    return 0


def campaign(sources: dict[str, Path]) -> dict[str, Any]:
    """Return the campaign over these models."""
    peers = {name: {"kind": "litert", "resolver": name.removeprefix("litert-")} for name in PEERS}
    delegates = {OURS: {"kind": "cpu"}, **peers}
    return {
        "version": 1,
        "campaign": "cpu_runtime",
        "defaults": {"measure": MEASURE, "limits": {"job": "12h"}},
        "models": [{"id": name, "source": str(path)} for name, path in sources.items()],
        "delegates": {name: {**options, "threads": 1} for name, options in delegates.items()},
        # The mark of loading compares our two with each other, and needs no peer.
        "exclude": [{"model": name, "delegate": "litert-*"} for name in LOADED if name in sources],
        "baseline": {"delegate": OURS},
        "devices": [{"name": "*host-cpu"}],
    }


def _sources(folder: Path) -> dict[str, Path]:
    files = {name: collection() / manifest()[name]["file"] for name in sorted(manifest())}
    files |= {name: shared_models() / "zoo" / zoo()[name]["skel"] for name in sorted(zoo())}
    for name, width in LOAD_WIDTHS.items():
        files[name] = folder / f"{name}.tflite"
        files[name].write_bytes(_layers(width))
    return files


def _facts(name: str) -> dict[str, Any]:
    if name in LOADED:
        return {"kind": "float32", "operators": LOAD_LAYERS}
    model = read_model(real_model(name) if name in manifest() else zoo_model(name))
    return {"kind": kind_of(model), "operators": len(model.subgraphs[0].operators)}


def _layers(width: int) -> bytes:
    builder = Builder()
    rng = np.random.default_rng(0)
    value = builder.input(np.float32, (1, width))
    for _ in range(LOAD_LAYERS):
        weights = builder.constant(rng.uniform(-1, 1, (width, width)).astype(np.float32))
        result = builder.tensor(np.float32, (1, width), type=TensorType.FLOAT32)
        builder.operator(BuiltinOperator.FULLY_CONNECTED, [value, weights, -1], [result])
        value = result
    return builder.write([value])


if __name__ == "__main__":
    raise SystemExit(main())
