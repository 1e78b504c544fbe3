"""The GPU delegate over LiteRT's published table: which models it takes whole and runs, and what comes out.

    .venv/bin/python -m benchmarks.coverage [--models GLOB ...] [--accept] [--resume]

The table's 60 rows are the zoo of `../shared/models`. One process for each model, on random inputs;
`--accept` asks only which operators the delegate takes, which needs no compiler. Writes
benchmarks/results/coverage.json and docs/coverage.md.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

from benchmarks.coverage_report import markdown, row_line
from runtime.delegates.base import PartitionDelegate
from runtime.delegates.partition import DelegationReport
from runtime.delegates.registry import load_delegate
from runtime.interpreter import Interpreter
from runtime.model.graph import Model
from runtime.model.reader import read_model
from runtime.tools.agreement import Expected, OutputFacts, judge, rule_for
from runtime.tools.arithmetic import arithmetic_of
from tests.models.collection import zoo, zoo_model
from tests.models.comparison import Outputs, random_rows, run_rows

REPOSITORY: Final = Path(__file__).resolve().parent.parent
JSON: Final = REPOSITORY / "benchmarks/results/coverage.json"
TABLE: Final = REPOSITORY / "docs/coverage.md"

LIMIT_S: Final = 1800
"""Seconds that one model may take, compiler and the `cpu` run included. The slowest took a third of it on two
cores; a model that takes longer counts as not run."""
REASONS: Final = 4
"""Kinds of operators that stay on the CPU of which a row quotes the reason, the most frequent first."""


def main() -> int:
    """Every chosen row, then the table."""
    args = _arguments()
    if args.one:
        print(json.dumps(_one(args.one, run=not args.accept)))
        return 0
    report: dict[str, Any] = {"rows": {}}
    if args.resume and JSON.exists():
        report = json.loads(JSON.read_text(encoding="utf-8"))
    for name, entry in zoo().items():
        known = report["rows"].get(name, {})
        wanted = entry["primary"] and any(fnmatch.fnmatch(name, glob) for glob in args.models)
        if not wanted or (known.get("verdict") == "pass" and known["status"] == "full"):
            continue
        published = {"published": entry["published_delegated"], "operators": entry["n_ops"]}
        report["rows"][name] = published | _in_a_process(name, accept=args.accept)
        print(row_line(name, report["rows"][name]), flush=True)
        JSON.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        TABLE.write_text(markdown(report["rows"]), encoding="utf-8")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=["*"], metavar="GLOB", help="names to try")
    parser.add_argument("--accept", action="store_true", help="ask what is taken; compile and run nothing")
    parser.add_argument("--resume", action="store_true", help="keep the rows of whole models that agreed")
    parser.add_argument("--one", metavar="NAME", help="one model, in this process; prints JSON")
    return parser.parse_args()


def _in_a_process(name: str, *, accept: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.coverage", "--one", name, *(["--accept"] if accept else [])]
    try:
        ran = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no end within {LIMIT_S} s"}
    if ran.returncode:
        return {"error": (ran.stderr.strip().splitlines() or [f"exit {ran.returncode}"])[-1]}
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def _one(name: str, *, run: bool) -> dict[str, Any]:
    data = zoo_model(name)
    delegate = load_delegate("gpu", {})
    assert isinstance(delegate, PartitionDelegate)
    interpreter = Interpreter(model_content=data, experimental_delegates=[delegate])
    found = _accepted(interpreter.delegation)
    if run:
        rows = random_rows(data)
        outputs = run_rows(interpreter, rows)
        # Planned again where a partition could not be compiled: what counts is what ran.
        found = _accepted(interpreter.delegation)
        interpreter.close()
        found |= _judged(read_model(data), run_rows(Interpreter(model_content=data), rows), outputs)
        found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return found


def _accepted(report: DelegationReport | None) -> dict[str, Any]:
    assert report is not None
    # Operators that would run, had the refused ones not divided the graph, say nothing.
    refused = [fallback for fallback in report.fallbacks if not fallback.reason.startswith("supported")]
    counts = Counter(fallback.op for fallback in refused)
    reasons = {fallback.op: fallback.reason for fallback in reversed(refused)}
    left = [[op, count, reasons[op]] for op, count in counts.most_common(REASONS)]
    return {
        "delegated": report.delegated_ops,
        "total": report.total_ops,
        "partitions": report.partitions,
        "status": report.status,
        "left": left,
    }


def _judged(model: Model, references: list[Outputs], outputs: list[Outputs]) -> dict[str, Any]:
    tensors = model.subgraphs[0].tensors
    facts = [OutputFacts(tensors[i].name) for i in model.subgraphs[0].outputs]
    rule = rule_for(arithmetic_of(model), integer_path=False, precision="fp32")
    found = judge(Expected(references, facts), outputs, rule)
    return {"verdict": found.verdict, "rel_l2": found.rel_l2, "note": found.note}


if __name__ == "__main__":
    raise SystemExit(main())
