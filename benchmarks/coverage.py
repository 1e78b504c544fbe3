"""The GPU delegate over LiteRT's published table: which models it takes whole and runs, and what comes out.

    .venv/bin/python -m benchmarks.coverage [--models GLOB ...] [--ways WAY ...] [--accept] [--keep]

The table's 60 rows are the zoo of `../shared/models`. One process for each model and way, on random inputs.
The ways are precisions; the kernels of work-groups on PoCL (`groups`), on Mesa's rusticl, which the
environment has to offer (`OCL_ICD_VENDORS`, `RUSTICL_ENABLE=llvmpipe`), and through WebGPU (`vulkan`,
`opengl`); `narrow`, which compares weights as the files of variants store them with widened ones; and for the
variants that are quantised whole, `simulated` and `int8`. Small models come first. `--accept` asks only which
operators the delegate takes, which needs no compiler. Writes benchmarks/results/coverage.json and
docs/coverage.md.
"""

import argparse
import fnmatch
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from benchmarks.coverage_report import WORK_GROUPS, markdown, row_line
from benchmarks.output import REPOSITORY, RESULTS, FailedError, in_a_process, parser, write_figures
from runtime.api.interpreter import Interpreter
from runtime.delegates.base import PartitionDelegate
from runtime.delegates.gpu.backends.opencl import library
from runtime.delegates.partition import DelegationReport
from runtime.delegates.registry import load_delegate
from runtime.judge.agreement import Expected, OutputFacts, judge
from runtime.judge.rules import arithmetic_of, rule_for
from runtime.measure.memory import peak_bytes
from runtime.model.reader import read_model
from tests.models.collection import zoo, zoo_model
from tests.models.comparison import Outputs, random_rows, run_rows

JSON: Final = RESULTS / "coverage.json"
TABLE: Final = REPOSITORY / "docs/coverage.md"

NARROW: Final = "narrow"
NARROW_VARIANTS: Final = frozenset({"fp16", "weight_int8", "dynamic_int8", "dynamic_int4"})
"""Variants of the zoo whose weights are narrow and whose activations are float32."""
SIMULATED: Final = "simulated"
INTEGERS: Final = "int8"
QUANTISED_VARIANT: Final = "static_int8"
"""The variant of the zoo that is quantised whole: computed with real numbers or with integers, two ways."""
WAYS: Final[Mapping[str, Mapping[str, Any]]] = {
    **{precision: {"precision": precision} for precision in ("fp32", "fp16", "bf16", INTEGERS)},
    # Equal kernels are compared: timing could choose others.
    NARROW: {"tuning": "none"},
    SIMULATED: {"precision": "fp32"},
    **WORK_GROUPS,
}
"""The delegate's options in each way."""
QUANTISED_DRAWS: Final = 3
"""Sets of random inputs of a quantised model: with one, an output that is always the same could not be told
from a right one."""

GROUP_CHECK: Final = "check_groups"
"""The name in `library` of what refuses a kernel in larger work-groups than its driver says that it takes."""
LIMIT_S: Final = 5400
"""Seconds that one model may take, compiler and the `cpu` run included. The slowest took a third of it on two
cores; a model that takes longer counts as not run."""
REASONS: Final = 4
"""Kinds of operators that stay on the CPU of which a row quotes the reason, the most frequent first."""


def main() -> int:
    """Every chosen model in every chosen way, then the tables."""
    args = _arguments()
    if args.one:
        way = args.ways[0]
        # Mesa 22.3's rusticl says that every kernel takes 32 work-items, and runs all that its device takes.
        with patch.object(library, GROUP_CHECK) if way.startswith("rusticl") else nullcontext():
            print(json.dumps(_one(args.one, way, run=not args.accept)))
        return 0
    report: dict[str, Any] = json.loads(JSON.read_text(encoding="utf-8")) if JSON.exists() else {}
    if not (args.resume or args.keep):
        report = {}
    for name, entry, way in _chosen(args.models, args.ways):
        known = _place(report, name, entry, way)
        if args.resume and known.get("verdict") == "pass" and known["status"] == "full":
            continue
        row = _in_a_process(name, way, accept=args.accept)
        _place(report, name, entry, way).update(row)
        print(row_line(f"{name} ({way})", row), flush=True)
        # After every model: what a run that is cut short has found is kept for `--resume`.
        write_figures(JSON, report)
        TABLE.write_text(markdown(report), encoding="utf-8")
    return 0


def _chosen(globs: Sequence[str], ways: Sequence[str]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the table's models in each precision, and variants with narrow weights or quantised whole."""
    for name, entry in sorted(zoo().items(), key=lambda item: int(item[1]["macs"])):
        if any(fnmatch.fnmatch(name, glob) for glob in globs):
            if entry["primary"]:
                yield from ((name, entry, way) for way in ways if way not in (NARROW, SIMULATED, INTEGERS))
            elif entry.get("variant") in NARROW_VARIANTS and NARROW in ways:
                yield name, entry, NARROW
            elif entry.get("variant") == QUANTISED_VARIANT:
                yield from ((name, entry, way) for way in ways if way in (SIMULATED, INTEGERS))


def _place(report: dict[str, Any], name: str, entry: dict[str, Any], way: str) -> dict[str, Any]:
    """Return the place of a model's findings in the report; fp32 stands in the row itself."""
    if way == NARROW:
        return _entry(report.setdefault(NARROW, {}), name, {"operators": entry["n_ops"]})
    if way in (SIMULATED, INTEGERS):
        found = _entry(report.setdefault("quantised", {}), name, {"operators": entry["n_ops"]})
        return _entry(found, way, {})
    published = {"published": entry["published_delegated"], "operators": entry["n_ops"]}
    row = _entry(report.setdefault("rows", {}), name, published)
    return row if way == "fp32" else _entry(row, way, {})


def _entry(table: dict[str, Any], key: str, new: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = table.setdefault(key, new)
    return found


def _arguments() -> argparse.Namespace:
    options = parser(__doc__, has_out=False)
    options.add_argument("--models", nargs="*", default=["*"], metavar="GLOB", help="names to try")
    options.add_argument(
        "--ways", nargs="*", default=["fp32"], choices=WAYS, help="precisions, or those of variants"
    )
    options.add_argument("--accept", action="store_true", help="ask what is taken; compile and run nothing")
    options.add_argument("--resume", action="store_true", help="keep what was taken whole and agreed")
    options.add_argument("--keep", action="store_true", help="keep everything else that the files hold")
    options.add_argument("--one", metavar="NAME", help="one model, in this process; prints JSON")
    return options.parse_args()


def _in_a_process(name: str, way: str, *, accept: bool) -> dict[str, Any]:
    more = ["--accept"] if accept else []
    try:
        return in_a_process("coverage", "--one", name, "--ways", way, *more, limit_s=LIMIT_S)
    except FailedError as error:
        return {"error": str(error)}


def _one(name: str, way: str, *, run: bool) -> dict[str, Any]:
    data = zoo_model(name)
    if way == NARROW:
        return _narrow(data, run=run)
    draws = QUANTISED_DRAWS if way in (SIMULATED, INTEGERS) else 1
    rows = [row for seed in range(draws) for row in random_rows(data, seed)]
    found, outputs, _ = _ours(data, WAYS[way], rows, run=run)
    return found | (_judged(data, outputs, way, rows) if run else {})


def _narrow(data: bytes, *, run: bool) -> dict[str, Any]:
    """Weights as the file stores them, beside the same run with widened ones."""
    rows = random_rows(data)
    found, outputs, size = _ours(data, WAYS[NARROW], rows, run=run)
    if not run:
        return found
    _, widened, whole = _ours(data, WAYS[NARROW] | {"weights": "float32"}, rows, run=True)
    pairs = [pair for sets in zip(outputs, widened, strict=True) for pair in zip(*sets, strict=True)]
    equal = all(np.array_equal(one.view(np.uint8), other.view(np.uint8)) for one, other in pairs)
    return found | {"equal": equal, "share": size / whole} | _judged(data, outputs, "fp32", rows)


def _ours(
    data: bytes, options: Mapping[str, Any], rows: Sequence[Outputs], *, run: bool
) -> tuple[dict[str, Any], list[Outputs], int]:
    """Return the operators that the delegate took, its outputs, and the bytes of its constants."""
    delegate = load_delegate("gpu", options)
    assert isinstance(delegate, PartitionDelegate)
    interpreter = Interpreter(model_content=data, experimental_delegates=[delegate])
    if not run:
        return _accepted(interpreter.delegation), [], 0
    outputs = run_rows(interpreter, rows)
    # Planned again where a partition could not be compiled: what counts is what ran.
    found = _accepted(interpreter.delegation)
    size = int(delegate.describe()["constant_bytes"])
    interpreter.close()
    found["peak_mib"] = peak_bytes() >> 20
    return found, outputs, size


def _accepted(report: DelegationReport | None) -> dict[str, Any]:
    assert report is not None
    # Operators that would run, had the refused ones not divided the graph, say nothing.
    refused = [fallback for fallback in report.fallbacks if not fallback.reason.startswith("supported")]
    counts = Counter(fallback.op for fallback in refused)
    # Backwards, so that of each kind of operator the first reason stays.
    reasons = {fallback.op: fallback.reason for fallback in reversed(refused)}
    left = [[op, count, reasons[op]] for op, count in counts.most_common(REASONS)]
    return {
        "delegated": report.delegated_ops,
        "total": report.total_ops,
        "partitions": report.partitions,
        "status": report.status,
        "left": left,
    }


def _judged(data: bytes, outputs: list[Outputs], way: str, rows: Sequence[Outputs]) -> dict[str, Any]:
    model = read_model(data)
    references = run_rows(Interpreter(model_content=data), rows)
    tensors = model.subgraphs[0].tensors
    facts = [OutputFacts(tensors[i].name) for i in model.subgraphs[0].outputs]
    precision = WAYS[way].get("precision", "fp32")
    rule = rule_for(arithmetic_of(model), integer_path=precision == INTEGERS, precision=precision)
    found = judge(Expected(references, facts), outputs, rule)
    return {"verdict": found.verdict, "rel_l2": found.rel_l2, "note": found.note}


if __name__ == "__main__":
    raise SystemExit(main())
