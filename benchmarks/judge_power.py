"""The judge's power: which wrong outputs does it notice, and does it call right ones wrong?

    python -m benchmarks.judge_power [--models GLOB ...] [--references FOLDER] [--resume] [--stored]

Every real model, the whole zoo of `../shared/models`, and a transformer of dynamic range with two outputs
that is made of one of them. What `cpu`, `gpu` and LiteRT compute is judged as a farm judges it; then an
honest output is corrupted, one output at a time (corruptions.py), and judged again. A corruption is caught,
or its output is explicitly not judged, or it is missed. References, honest runs and outputs are made once, in
processes of their own with bounded memory, and kept in FOLDER; `--stored` judges what is there and makes
nothing. Nothing is timed, so the machine's load does not matter. Writes results/judge_power.{json,md}.
"""

import argparse
import fnmatch
import hashlib
import json
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.corruptions import corrupted
from benchmarks.dynamic_range import dynamic_range
from benchmarks.judge_power_report import markdown, row_line
from benchmarks.output import REPOSITORY, RESULTS, FailedError, in_a_process, parser
from runtime.delegates.litert import litert_version
from runtime.judge.agreement import AMPLIFIES, Expected, judge, judge_each, variation
from runtime.judge.rules import Arithmetic, Rule, arithmetic_of, keeps_state, rule_for
from runtime.measure.inputs import POOL_SIZE, InputRule
from runtime.measure.loading import Opener, Subject
from runtime.measure.outputs import run_sets
from runtime.measure.reference import (
    Reference,
    ReferenceKind,
    draw_kinds,
    load_reference,
    make_reference,
    save_reference,
)
from runtime.model.graph import Model
from runtime.model.reader import read_model
from runtime.model.schema import TensorType
from tests.models.collection import manifest, real_model, zoo, zoo_model
from tests.reports import write_report
from tests.tree import tree

JSON: Final = RESULTS / "judge_power.json"
KEPT: Final = REPOSITORY / ".farm/judge_references"

HYBRID: Final = "hf_tinyroberta_squad2__dynamic_int8"
"""A transformer of dynamic range with two outputs, which the zoo has as floats alone."""
HYBRID_OF: Final = "hf_tinyroberta_squad2"

SETS: Final = (0, POOL_SIZE - 1)
"""Input sets whose outputs are corrupted: noise, and the natural one. More would say the same."""

LARGEST: Final = 20_000
"""Values of an output up to which it is corrupted. Larger ones take minutes each."""

LIMIT_S: Final = 3000
"""Seconds that one process may take. The slowest model of the zoo takes minutes on an idle core."""

MEMORY_BYTES: Final = 6 << 30
"""Bytes of data that a process may allocate which runs a model; one that needs more has no outputs."""

_GPU: Final = {"tuning": "none", "persistent": "off", "cost_aware_partitioning": False}

HONEST: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "cpu": ("cpu", {}),
    **{f"gpu-{p}": ("gpu", {**_GPU, "precision": p}) for p in ("fp32", "fp16", "bf16", "int8")},
}
"""Delegates whose outputs are right, by name: kind and options."""

_NARROW: Final = ("fp16", "bf16")
"""Types to which weights are rounded, which are precisions, too."""

_JUDGED: Final = {
    "fp32": ("cpu", "gpu-fp32", "xnnpack"),
    "fp16": ("gpu-fp16", "xnnpack"),
    "bf16": ("gpu-bf16", "xnnpack"),
    "quantised": ("cpu", "gpu-fp32", "gpu-int8", "xnnpack"),
}
"""Honest outputs of each pairing. XNNPACK's are those of the delegate `litert`."""

_CORRUPTED: Final = {"fp32": "xnnpack", "fp16": "fp16", "quantised": "xnnpack"}
"""The honest outputs of each pairing that are corrupted."""


def main() -> int:
    """Every chosen model, small ones first; then the tables."""
    args = _arguments()
    if args.make:
        name, what, target = args.make
        _make(name, what, Path(target))
        return 0
    if args.judge:
        print(json.dumps(_judged(args.judge, args.references)))
        return 0
    began = tree()
    report: dict[str, Any] = {"litert": litert_version(), "rows": {}}
    if args.resume and JSON.exists():
        report = json.loads(JSON.read_text(encoding="utf-8"))
    for name in _names(args.models):
        if args.resume and name in report["rows"]:
            continue
        if not args.stored:
            for what in _runs(arithmetic_of(read_model(_data(name)))):
                _keep(name, what, args.references)
        elif not any(_stored(args.references, name, kind) for kind in ("reference", "xnnpack")):
            continue
        report["rows"][name] = _judged_in_a_process(name, args.references)
        print(row_line(name, report["rows"][name]), flush=True)
        JSON.write_text(_text(report), encoding="utf-8")
        write_report(JSON.with_suffix(".md"), markdown(report), began, None)
    if report["rows"]:
        write_report(JSON.with_suffix(".md"), markdown(report), began, 0)
    return 0


def _text(report: Mapping[str, Any]) -> str:
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in report["rows"].items())
    return f'{{"litert": {json.dumps(report["litert"])}, "rows": {{\n{rows}\n}}}}\n'


def _arguments() -> argparse.Namespace:
    options = parser(__doc__, has_out=False)
    options.add_argument("--models", nargs="*", default=["*"], metavar="GLOB", help="names to try")
    options.add_argument("--references", type=Path, default=KEPT, help="folder of stored outputs")
    options.add_argument("--resume", action="store_true", help="keep the rows of results/judge_power.json")
    options.add_argument("--stored", action="store_true", help="judge the models whose outputs are stored")
    options.add_argument("--make", nargs=3, help=argparse.SUPPRESS)
    options.add_argument("--judge", help=argparse.SUPPRESS)
    return options.parse_args()


def _names(globs: Sequence[str]) -> Iterator[str]:
    """Return the real models, the one that is made, then the zoo by the number of its products."""
    found = [*sorted(manifest()), HYBRID, *sorted(zoo(), key=lambda name: int(zoo()[name]["macs"]))]
    return (name for name in found if any(fnmatch.fnmatch(name, glob) for glob in globs))


def _data(name: str) -> bytes:
    if name == HYBRID:
        return dynamic_range(zoo_model(HYBRID_OF))
    return zoo_model(name) if name in zoo() else real_model(name)


def _runs(arithmetic: Arithmetic) -> list[str]:
    """Everything that is run of a model: references and honest runs, then delegates."""
    kinds = (*_bases(), *draw_kinds(arithmetic, _NARROW))
    labels = ("fp32", *_NARROW) if arithmetic is Arithmetic.FLOAT else ("quantised",)
    honest = dict.fromkeys(what for label in labels for what in _JUDGED[label] if what in HONEST)
    return [*map(str, kinds), *honest]


def _bases() -> tuple[ReferenceKind, ReferenceKind]:
    return ReferenceKind.REFERENCE_KERNELS, ReferenceKind.XNNPACK


def _place(name: str, what: str, folder: Path) -> Path:
    return folder / f"{name}.{what}.npz"


def _keep(name: str, what: str, folder: Path) -> None:
    """Make outputs unless they are there; what cannot be made leaves a file that says why."""
    path = _place(name, what, folder)
    failed = path.with_suffix(".failed")
    if path.exists() or failed.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    try:
        in_a_process("judge_power", "--make", name, what, str(path), limit_s=LIMIT_S)
    except FailedError as error:
        failed.write_text(str(error), encoding="utf-8")


def _make(name: str, what: str, target: Path) -> None:
    """Run the farm's pool of a model, and store what comes out."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    data = _data(name)
    sha256, rules = hashlib.sha256(data).hexdigest(), _rules(read_model(data))
    with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
        file.write(data)
        file.flush()
        if what not in HONEST:
            save_reference(target, make_reference(file.name, sha256, rules, ReferenceKind(what)))
            return
        kind, options = HONEST[what]
        made = run_sets(Subject(Opener.prepare(kind, options), file.name, sha256, rules))
        save_reference(target, Reference(ReferenceKind.CPU, what, made.facts, made.sets, made.pool_sha256))


def _rules(model: Model) -> dict[str, InputRule]:
    """Return rules for indices and masks of 0 and 1, which every model takes; the rest as the farm fills it.

    A single integer is a length, and none is a model's business at 0.
    """
    graph = model.subgraphs[0]
    inputs = [graph.tensors[i] for i in graph.inputs]
    plain = [t for t in inputs if t.type in (TensorType.INT32, TensorType.INT64) and t.quantization is None]
    return {t.name: InputRule(low=2, high=9) if np.prod(t.shape) == 1 else InputRule(low=0, high=1)
            for t in plain}  # fmt: skip


def _stored(folder: Path, name: str, what: str) -> Reference | None:
    path = _place(name, what, folder)
    return load_reference(path) if path.exists() else None


def _judged(name: str, folder: Path) -> dict[str, Any]:
    """Return a model's row: each rule's verdicts on honest outputs, and each corruption's fate."""
    model = read_model(_data(name))
    arithmetic = arithmetic_of(model)
    found = {what: made for what in _runs(arithmetic) if (made := _stored(folder, name, what)) is not None}
    # Of LiteRT's plain kernels where they could be run, else XNNPACK's.
    reference = next((found[str(kind)] for kind in _bases() if str(kind) in found), None)
    if reference is None:
        path = _place(name, "reference", folder).with_suffix(".failed")
        return {"not_judged": f"no reference: {path.read_text(encoding='utf-8')}"}
    exact = reference.kind is ReferenceKind.REFERENCE_KERNELS
    draws = {what: made.outputs[:POOL_SIZE] for what, made in found.items()
             if what not in HONEST and made is not reference}  # fmt: skip
    expected = Expected(reference.outputs[:POOL_SIZE], reference.output_facts, draws)
    labels = ("fp32", *_NARROW) if arithmetic is Arithmetic.FLOAT else ("quantised",)
    row: dict[str, Any] = {
        "arithmetic": str(arithmetic),
        "keeps_state": keeps_state(model),
        "reference": str(reference.kind),
        "rules": {},
    }
    for label in labels:
        precision = label if label in _NARROW else "fp32"
        rule = rule_for(
            arithmetic, integer_path=False, precision=precision, exact_reference=exact, draws=list(draws)
        )
        cases = list(_cases(expected, found, rule, label))
        row["rules"][label] = {
            "rule": rule.text,
            "honest": {what: _honest(expected, found[what], rule)
                       for what in _JUDGED[label] if what in found and found[what] is not reference},
            "counts": Counter(outcome for _, _, outcome in cases),
            "missed": [f"{what} ({output})" for what, output, outcome in cases if outcome == "missed"],
            "by_corruption": {
                what: Counter(outcome for other, _, outcome in cases if other == what)
                for what in dict.fromkeys(what for what, _, _ in cases)
            },
        }  # fmt: skip
    return row


def _honest(expected: Expected, made: Reference, rule: Rule) -> dict[str, Any]:
    verdict = judge(expected, made.outputs[:POOL_SIZE], rule)
    return {"verdict": verdict.verdict, "margin": verdict.margin, "note": verdict.note[:300]}


def _cases(
    expected: Expected, found: Mapping[str, Reference], rule: Rule, label: str
) -> Iterator[tuple[str, str, str]]:
    """(corruption, output, outcome): each output of the honest ones corrupted alone, in each way."""
    outcomes = {"fail": "caught", "pass": "missed", None: "not judged"}
    base = found.get(_CORRUPTED.get(label, ""))
    if base is None:
        return
    for i, (fact, varies) in enumerate(zip(expected.facts, variation(expected.references), strict=True)):
        # What no output of this model can be, right or wrong, no corruption is told from.
        if not varies or expected.references[0][i].size > LARGEST:
            continue
        alone = Expected(
            [[values[i]] for values in expected.references],
            [fact],
            {name: [[values[i]] for values in outputs] for name, outputs in expected.draws.items()},
        )
        honest = judge(alone, [[base.outputs[k][i]] for k in SETS], rule, sets=SETS)
        if honest.verdict is None and AMPLIFIES in honest.note:
            continue
        for what, wrong in corrupted([base.outputs[k][i] for k in SETS], fact, label).items():
            judged = judge_each(alone, [[value] for value in wrong], rule, sets=SETS)
            yield what, fact.name, outcomes[judged[0].verdict]


def _judged_in_a_process(name: str, folder: Path) -> dict[str, Any]:
    """Judging holds all outputs of a model several times; its memory ends with its process."""
    try:
        return in_a_process("judge_power", "--judge", name, "--references", str(folder))
    except FailedError as error:
        return {"error": str(error)}


if __name__ == "__main__":
    sys.exit(main())
