"""`farm model diff`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from runtime.tools import calls

if TYPE_CHECKING:
    from runtime.tools.model_bisect.search import Bisected

EXAMPLES: Final = (
    "farm model diff my.tflite --delegate gpu",
    "farm model diff my.tflite --option precision=fp16 --runs 10 --per-operator",
    "farm model diff bert.tflite --delegate openvino --reference builtin-ref --input ids=0..999 --json",
)

MOST_RUNS: Final = 100_000
"""The most input sets: a set of a small model takes a millisecond. Chosen to refuse typing errors."""


def diff(
    file: calls.ModelFile,
    delegate: Annotated[str, typer.Option(help="The delegate that is compared.")] = "gpu",
    option: calls.Options = None,
    reference: Annotated[
        Literal["litert", "builtin-ref", "cpu"],
        typer.Option(
            help="One thread of LiteRT with XNNPACK, of LiteRT's reference kernels, or of this runtime."
        ),
    ] = "litert",
    runs: Annotated[int, typer.Option(min=1, max=MOST_RUNS, help="Input sets.")] = 50,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of the inputs.")] = 0,
    input_: calls.Inputs = None,
    shape: calls.Shapes = None,
    per_operator: Annotated[
        bool,
        typer.Option("--per-operator", help="Add each operator's own error, run alone on the first set."),
    ] = False,
    signature: calls.SignatureKey = None,
    as_json: calls.Json = False,
) -> int:
    """Compare a delegate's outputs with a reference's, as LiteRT's Inference Diff does.

    Each run draws one set of Gaussian inputs, on which both invoke the model three times. LiteRT's lines come
    first, then further figures of each output, and a verdict by the rule of a result.
    Exit code: 0 no output is outside the rule, 1 one is.
    """
    from runtime.measure.inputs import ranged
    from runtime.model.signatures import readable_model
    from runtime.tools.model_bisect import search
    from runtime.tools.model_diff import comparing, printed
    from runtime.tools.model_diff.running import Setting

    options, rules = calls.options_of(option or [], None), calls.rules_of(input_ or [], shape or [])
    with calls.clear_errors(file), readable_model(file, signature) as (path, model):
        say = calls.progress()

        def told(done: int) -> None:
            if done < runs:
                say(f"{done} of {runs} runs ...")

        setting, given = Setting.of(delegate, options), ranged(rules, model.subgraphs[0])
        request = comparing.Request(setting, reference, runs, seed, given)
        found = comparing.difference(model, path, request, told)
        bisected = (
            search.bisect(model, found.inputs, delegate, request.test.options) if per_operator else None
        )
    operators = None if bisected is None else list(_operators(bisected))
    lines = [*printed.litert_lines(found), *printed.own_lines(found, file.name)]
    for one in operators or ():
        wrong = ", outside the rule" if one["is_suspect"] else ""
        lines.append(f"  operator {one['index']} {one['name']}: rel_l2 {one['rel_l2']:.3g}{wrong}")
    more = {} if operators is None else {"operators": operators}
    calls.answer({**printed.document(found, str(file)), **more}, lines, as_json)
    if found.judgement.verdict == "fail":
        raise typer.Exit(1)
    return 0


def _operators(found: Bisected) -> Iterator[dict[str, Any]]:
    suspects = {index for suspect in found.suspects for index in suspect.operators}
    for index, error in sorted(found.errors.items()):
        name = found.graph.operators[index].name
        yield {"index": index, "name": name, "rel_l2": error, "is_suspect": index in suspects}
