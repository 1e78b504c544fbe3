"""`farm model diff`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from runtime.tools.calls import SignatureKey, clear_errors, options_of, rules_of, visible

if TYPE_CHECKING:
    from runtime.tools.model_bisect.search import Bisected

EXAMPLES: Final = (
    "farm model diff my.tflite --delegate gpu",
    "farm model diff my.tflite --option precision=fp16 --runs 10 --per-operator",
    "farm model diff bert.tflite --delegate openvino --reference builtin-ref --input ids=0..999 --json",
)

MOST_RUNS: Final = 100_000
"""The most input sets: a set of a small model takes a millisecond. Chosen to refuse typing errors."""

_PROGRESS_S: Final = 5.0
"""Seconds between two lines of progress. Chosen: rarer, and a long run looks dead."""


def diff(
    file: Annotated[Path, typer.Argument(help="A .tflite or .skel file.")],
    delegate: Annotated[str, typer.Option(help="The delegate that is compared.")] = "gpu",
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the delegate; repeatable.")
    ] = None,
    reference: Annotated[
        Literal["litert", "builtin-ref", "cpu"],
        typer.Option(
            help="One thread of LiteRT with XNNPACK, of LiteRT's reference kernels, or of this runtime."
        ),
    ] = "litert",
    runs: Annotated[int, typer.Option(min=1, max=MOST_RUNS, help="Input sets.")] = 50,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of the inputs.")] = 0,
    input_: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=LOW..HIGH", help="Values of an input; repeatable."),
    ] = None,
    shape: Annotated[
        list[str] | None, typer.Option(metavar="NAME=N,N,...", help="The shape of an input; repeatable.")
    ] = None,
    per_operator: Annotated[
        bool,
        typer.Option("--per-operator", help="Add each operator's own error, run alone on the first set."),
    ] = False,
    signature: SignatureKey = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> int:
    """Compare a delegate's outputs with a reference's, as LiteRT's Inference Diff does.

    Each run draws one set of Gaussian inputs, on which both invoke the model three times. LiteRT's lines come
    first, then further figures of each output, and a verdict by the rule of a result.
    Exit code: 0 no output is outside the rule, 1 one is.
    """
    from runtime.measure.inputs import ranged
    from runtime.tools.model_bisect import search
    from runtime.tools.model_diff import comparing, printed
    from runtime.tools.model_diff.running import Setting
    from runtime.tools.model_info.source import readable_model

    options, rules = options_of(option or [], None), rules_of(input_ or [], shape or [])
    with clear_errors(file), readable_model(file, signature) as (path, model):
        setting, given = Setting.of(delegate, options), ranged(rules, model.subgraphs[0])
        request = comparing.Request(setting, reference, runs, seed, given)
        found = comparing.difference(model, path, request, _progress(runs))
        bisected = (
            search.bisect(model, found.inputs, delegate, request.test.options) if per_operator else None
        )
    if as_json:
        more = {} if bisected is None else {"operators": list(_operators(bisected))}
        typer.echo(json.dumps({**printed.document(found, str(file)), **more}, indent=1))
    else:
        for line in (*printed.litert_lines(found), *printed.own_lines(found, file.name)):
            typer.echo(visible(line))
        for one in () if bisected is None else _operators(bisected):
            wrong = ", outside the rule" if one["is_suspect"] else ""
            typer.echo(visible(f"  operator {one['index']} {one['name']}: rel_l2 {one['rel_l2']:.3g}{wrong}"))
    if found.judgement.verdict == "fail":
        raise typer.Exit(1)
    return 0


def _operators(found: Bisected) -> Iterator[dict[str, Any]]:
    """Yield every operator that was run alone on the values of LiteRT's reference kernels."""
    suspects = {index for suspect in found.suspects for index in suspect.operators}
    for index, error in sorted(found.errors.items()):
        name = found.graph.operators[index].name
        yield {"index": index, "name": name, "rel_l2": error, "is_suspect": index in suspects}


def _progress(runs: int) -> Callable[[int], None]:
    """Return what prints how far a long comparison is."""
    last = time.monotonic()

    def show(done: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _PROGRESS_S and done < runs:
            last = time.monotonic()
            typer.echo(f"{done} of {runs} runs ...", err=True)

    return show
