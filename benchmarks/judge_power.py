"""The judge's power: on every model, which wrong outputs does the rule of agreement notice?

    python -m benchmarks.judge_power [--models GLOB ...] [--references FOLDER] [--resume]

Every real model and the whole zoo of `../shared/models`. What XNNPACK computes is corrupted in one output at
a time (corruptions.py) and judged as a delegate's output would be. A corruption is caught, or its output is
explicitly not judged, or it is missed. References are made once, in processes of their own with bounded
memory, over the first input sets of the farm's pool, and kept in FOLDER. Nothing is timed, so the machine's
load does not matter; the reference kernels take about half an hour. Writes results/judge_power.{json,md}.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.corruptions import corrupted
from benchmarks.judge_power_report import markdown, row_line
from runtime.delegates.litert import litert_version
from runtime.model.reader import read_model
from runtime.tools.agreement import Expected, Rule, judge, judge_each, rule_for
from runtime.tools.arithmetic import Arithmetic, arithmetic_of, keeps_state
from runtime.tools.inputs import InputRule, make_pool
from runtime.tools.loading import Opener, output_facts
from runtime.tools.reference import Reference, ReferenceKind, load_reference, save_reference
from tests.models.collection import manifest, real_model, zoo, zoo_model
from tests.reports import write_report
from tests.tree import tree

REPOSITORY: Final = Path(__file__).resolve().parent.parent
JSON: Final = REPOSITORY / "benchmarks/results/judge_power.json"
KEPT: Final = REPOSITORY / ".farm/judge_references"

SETS: Final = 2
"""Input sets of a reference. Another set's output needs two; each more costs as much time again."""

LIMIT_S: Final = 3000
"""Seconds that one reference may take. The slowest model of the zoo takes minutes on an idle core."""

MEMORY_BYTES: Final = 4 << 30
"""Bytes of data that a process which makes a reference may allocate; one that needs more has no reference."""


def main() -> int:
    """Every chosen model, small ones first; then the tables."""
    args = _arguments()
    if args.make:
        name, kind, target = args.make
        _make(name, ReferenceKind(kind), Path(target))
        return 0
    if args.judge:
        print(json.dumps(_judged(args.judge, args.references)))
        return 0
    began = tree()
    report: dict[str, Any] = {"litert": litert_version(), "sets": SETS, "rows": {}}
    if args.resume and JSON.exists():
        report = json.loads(JSON.read_text(encoding="utf-8"))
    for name in _names(args.models):
        if args.resume and name in report["rows"]:
            continue
        for kind in (ReferenceKind.REFERENCE_KERNELS, ReferenceKind.XNNPACK):
            _keep(name, kind, args.references)
        report["rows"][name] = _in_a_process("--judge", name, args.references)
        print(row_line(name, report["rows"][name]), flush=True)
        JSON.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        write_report(JSON.with_suffix(".md"), markdown(report), began, None)
    if report["rows"]:
        write_report(JSON.with_suffix(".md"), markdown(report), began, 0)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=["*"], metavar="GLOB", help="names to try")
    parser.add_argument("--references", type=Path, default=KEPT, help="folder of stored references")
    parser.add_argument("--resume", action="store_true", help="keep the rows of results/judge_power.json")
    parser.add_argument("--make", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--judge", help=argparse.SUPPRESS)
    return parser.parse_args()


def _names(globs: Sequence[str]) -> Iterator[str]:
    """The real models, then the zoo by the number of its products."""
    found = [*sorted(manifest()), *sorted(zoo(), key=lambda name: int(zoo()[name]["macs"]))]
    return (name for name in found if any(fnmatch.fnmatch(name, glob) for glob in globs))


def _data(name: str) -> bytes:
    return zoo_model(name) if name in zoo() else real_model(name)


def _place(name: str, kind: ReferenceKind, folder: Path) -> Path:
    return folder / f"{name}.{kind.value}.npz"


def _keep(name: str, kind: ReferenceKind, folder: Path) -> None:
    """Make a reference unless it is there; one that cannot be made leaves a file that says why."""
    path = _place(name, kind, folder)
    failed = path.with_suffix(".failed")
    if path.exists() or failed.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.judge_power", "--make", name, kind.value, str(path)]
    try:
        ran = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
        said = (ran.stderr.strip().splitlines() or ["nothing"])[-1]
        why = None if ran.returncode == 0 else f"exit {ran.returncode}: {said}"
    except subprocess.TimeoutExpired:
        why = f"took more than {LIMIT_S} s"
    if why is not None:
        failed.write_text(why[:300], encoding="utf-8")


def _make(name: str, kind: ReferenceKind, target: Path) -> None:
    """Run the first sets of the model's pool through LiteRT and store what comes out."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    data = _data(name)
    with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
        file.write(data)
        file.flush()
        opener = Opener.prepare("litert", {"threads": 1, "resolver": kind.value})
        model = opener.open(file.name).model
        details = model.get_input_details()
        pool = make_pool(details, hashlib.sha256(data).hexdigest(), _rules(details))
        indices = [int(d["index"]) for d in model.get_output_details()]
        outputs = []
        for values in pool.sets[:SETS]:
            for detail, value in zip(details, values, strict=True):
                model.set_tensor(int(detail["index"]), value)
            model.invoke()
            outputs.append(tuple(model.get_tensor(index) for index in indices))
        save_reference(target, Reference(kind, kind.value, output_facts(model), tuple(outputs)))


def _rules(details: Sequence[dict[str, Any]]) -> dict[str, InputRule]:
    """Indices and masks of 0 and 1, which every model takes; everything else as the farm fills it.

    A single integer is a length, and none is a model's business at 0.
    """
    integers = (np.dtype(np.int32), np.dtype(np.int64))
    plain = [d for d in details if np.dtype(d["dtype"]) in integers and not d["quantization"][0]]
    return {
        str(d["name"]): InputRule(low=2, high=9) if np.prod(d["shape"]) == 1 else InputRule(low=0, high=1)
        for d in plain
    }


def _judged(name: str, folder: Path) -> dict[str, Any]:
    """The row of a model: XNNPACK's own verdict by each rule, and what became of each corruption."""
    found = {
        kind: load_reference(_place(name, kind, folder))
        for kind in (ReferenceKind.REFERENCE_KERNELS, ReferenceKind.XNNPACK)
        if _place(name, kind, folder).exists()
    }
    if not found:
        path = _place(name, ReferenceKind.REFERENCE_KERNELS, folder).with_suffix(".failed")
        return {"not_judged": f"no reference: {path.read_text(encoding='utf-8')}"}
    reference = next(iter(found.values()))
    exact = reference.kind is ReferenceKind.REFERENCE_KERNELS
    peer = found.get(ReferenceKind.XNNPACK) if exact else None
    expected = Expected(reference.outputs, reference.output_facts, None if peer is None else peer.outputs)
    honest = reference.outputs if peer is None else peer.outputs
    model = read_model(_data(name))
    row: dict[str, Any] = {
        "arithmetic": str(arithmetic_of(model)),
        "keeps_state": keeps_state(model),
        "reference": str(reference.kind),
        "rules": {},
    }
    for label, rule in _pairings(arithmetic_of(model), exact=exact, has_peer=peer is not None):
        verdict = judge(expected, honest, rule)
        cases = list(_cases(expected, honest, rule))
        row["rules"][label] = {
            "rule": rule.text,
            "xnnpack": {"verdict": verdict.verdict, "rel_l2": verdict.rel_l2, "note": verdict.note[:300]},
            "counts": Counter(outcome for _, _, outcome in cases),
            "missed": [f"{what} ({output})" for what, output, outcome in cases if outcome == "missed"],
            "by_corruption": {
                what: Counter(outcome for other, _, outcome in cases if other == what)
                for what in dict.fromkeys(what for what, _, _ in cases)
            },
        }
    return row


def _pairings(arithmetic: Arithmetic, *, exact: bool, has_peer: bool) -> Iterator[tuple[str, Rule]]:
    """The rules by which delegates of this model are judged."""
    fits = {"exact_reference": exact, "has_peer": has_peer}
    if arithmetic is Arithmetic.FLOAT:
        for precision in ("fp32", "fp16"):
            yield precision, rule_for(arithmetic, integer_path=False, precision=precision, **fits)
    else:
        yield "quantised", rule_for(arithmetic, integer_path=False, precision="fp32", **fits)


def _cases(expected: Expected, honest: Sequence[Sequence[Any]], rule: Rule) -> Iterator[tuple[str, str, str]]:
    """(corruption, output, outcome): each output of the honest ones corrupted alone, in each way."""
    outcomes = {"fail": "caught", "pass": "missed", None: "not judged"}
    for i, fact in enumerate(expected.facts):
        for what, values in corrupted([outputs[i] for outputs in honest], fact).items():
            wrong = [
                (*outputs[:i], value, *outputs[i + 1 :])
                for outputs, value in zip(honest, values, strict=True)
            ]
            yield what, fact.name, outcomes[judge_each(expected, wrong, rule)[i].verdict]


def _in_a_process(flag: str, name: str, folder: Path) -> dict[str, Any]:
    """Judging holds all outputs of a model several times; its memory ends with its process."""
    command = [sys.executable, "-m", "benchmarks.judge_power", flag, name, "--references", str(folder)]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        return {"error": (ran.stderr.strip().splitlines() or [f"exit {ran.returncode}"])[-1][:300]}
    return dict(json.loads(ran.stdout.splitlines()[-1]))


if __name__ == "__main__":
    sys.exit(main())
