"""`farm model bisect`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from runtime.tools import calls

if TYPE_CHECKING:
    from runtime.tools.model_bisect.search import Bisected, Suspect

EXAMPLES: Final = (
    "farm model bisect my.tflite --delegate gpu",
    "farm model bisect my.tflite --delegate gpu --option precision=fp16 --json",
    "farm model bisect bert.tflite --input ids=0..999 --out wrong",
)

_SHOWN: Final = 5
"""Operators with the largest errors that are printed. Chosen to fit a screen; `--json` has all."""


def bisect(
    file: calls.ModelFile,
    delegate: Annotated[str, typer.Option(help="The delegate whose outputs are wrong.")] = "gpu",
    option: calls.Options = None,
    input_: calls.Inputs = None,
    shape: calls.Shapes = None,
    out: Annotated[Path, typer.Option(help="Folder for the wrong operators.")] = Path("bisected"),
    signature: calls.SignatureKey = None,
    as_json: calls.Json = False,
) -> int:
    """Find the first operator that a delegate computes wrongly.

    Every operator is run alone on LiteRT's values, then every fusion, then the whole model. A wrong operator
    is written as a model of its own, with its inputs. Exit code: 0 nothing is wrong, 1 something is.
    """
    from runtime.measure.inputs import make_pool, ranged
    from runtime.measure.loading import Opener
    from runtime.model.signatures import readable_model
    from runtime.tools.model_bisect import search

    options, rules = calls.options_of(option or [], None), calls.rules_of(input_ or [], shape or [])
    with calls.clear_errors(file), readable_model(file, signature) as (path, model):
        rules = ranged(rules, model.subgraphs[0])
        # The CPU path opens every model that the runtime knows, whatever the delegate would refuse of it.
        details = Opener.prepare("cpu", {}).open(str(path), rules).model.get_input_details()
        pool = make_pool(details, hashlib.sha256(path.read_bytes()).hexdigest(), rules)
        # Progress goes to stderr: stdout may be a JSON document.
        found = search.bisect(
            model, pool.sets[0], delegate, options, lambda phase: typer.echo(f"{phase} ...", err=True)
        )
        written = {suspect.operators: _written(found, suspect, model, out) for suspect in found.suspects}
    calls.answer(_document(found, written), _lines(file.name, delegate, found, written), as_json)
    if found.suspects:
        raise typer.Exit(1)
    return 0


def _written(found: Bisected, suspect: Suspect, model: Any, folder: Path) -> str:
    from runtime.errors import FarmRuntimeError
    from runtime.tools.model_bisect.oracle import write_arrays
    from runtime.tools.model_bisect.search import one_operator

    try:
        data, inputs = one_operator(model, suspect, found.values)
    except FarmRuntimeError as error:
        return f"not written: {error}"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / ("_".join(map(str, suspect.operators)) + ".tflite")
    target.write_bytes(data)
    write_arrays(target.with_suffix(".npz"), inputs)
    return str(target)


def _named(found: Bisected, suspect: Suspect) -> str:
    return " + ".join(f"{i} {found.graph.operators[i].name}" for i in suspect.operators)


def _lines(name: str, delegate: str, found: Bisected, written: dict[tuple[int, ...], str]) -> Iterator[str]:
    yield f"{name} on {delegate}, {found.settings.get('precision', 'fp32')}; {found.rule}"
    if not found.suspects:
        yield f"  no operator of {len(found.graph.operators)} is outside the rule"
    for number, suspect in enumerate(found.suspects):
        tensor = found.graph.tensors[suspect.tensor].name
        yield f"  {'first' if not number else 'also'}: {_named(found, suspect)}, {suspect.how}, {tensor!r}"
        yield f"    {suspect.judgement.note}"
        yield f"    {written[suspect.operators]}"
    if found.in_place is not None:
        yield f"  in the whole model the first outside the rule is {_named(found, found.in_place)}"
    largest = sorted(found.errors.items(), key=lambda one: -one[1])[:_SHOWN]
    yield "  largest relative errors alone: " + ", ".join(
        f"{i} {found.graph.operators[i].name} {error:.2g}" for i, error in largest
    )
    if found.missing:
        yield f"  not tried alone (state, strings, other subgraphs): {', '.join(map(str, found.missing))}"


def _document(found: Bisected, written: dict[tuple[int, ...], str]) -> dict[str, Any]:
    def told(suspect: Suspect) -> dict[str, Any]:
        judgement = suspect.judgement
        return {
            "operators": [{"index": i, "name": found.graph.operators[i].name} for i in suspect.operators],
            "how": suspect.how,
            "tensor": found.graph.tensors[suspect.tensor].name,
            "max_abs": judgement.max_abs,
            "rel_l2": judgement.rel_l2,
            "cosine": judgement.cosine,
            "note": judgement.note,
            "file": written.get(suspect.operators),
        }

    return {
        "rule": found.rule,
        "settings": dict(found.settings),
        "suspects": [told(one) for one in found.suspects],
        "in_place": None if found.in_place is None else told(found.in_place),
        "errors": {str(i): error for i, error in found.errors.items()},
        "missing": list(found.missing),
    }
