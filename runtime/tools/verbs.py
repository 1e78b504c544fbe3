"""`farm model …`: the verbs that inspect model files.

They join `farm` through the entry-point group `delegate_farm.verbs`. A verb imports when it runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from runtime.tools import calls
from runtime.tools.model_bisect import verb as bisect_verb
from runtime.tools.model_diff import verb as diff_verb
from runtime.tools.model_eval import verb as eval_verb

if TYPE_CHECKING:
    from runtime.tools.model_info import Advice, DelegateView, MemoryPlan, ModelFacts
    from runtime.tools.model_info.advice import Measured


_MOST_ROUNDS: Final = 10_000
"""The most rounds of a profile: one of a small model takes a millisecond. Chosen to refuse typing errors."""

_SETTINGS: Final = {"help_option_names": ["-h", "--help"]}
_SHOWN_REASONS: Final = 12
"""Reasons printed for each delegate. Chosen to keep the listing on a screen; `--json` has all."""


def model_verbs() -> typer.Typer:
    """`farm model`."""
    app = _group("What is in a model file.")
    _add(app, "info", info, "farm model info my.tflite", "farm model info my.tflite --json")
    _add(app, "kinds", kinds, "farm model kinds", "farm model kinds --json")
    _add(
        app, "plan", plan,
        "farm model plan my.tflite",
        "farm model plan my.tflite --device-class gpu",
        "farm model plan my.tflite --threads 2 --tuned --option precision=fp16 --json",
        "farm model plan my.tflite --dot | dot -Tsvg > plan.svg",
    )  # fmt: skip
    _add(
        app, "profile", profile,
        "farm model profile my.tflite",
        "farm model profile my.tflite --delegate cpu --rounds 30 --json",
        "farm model profile my.tflite --threads 2 --litert",
        "farm model profile my.tflite --format flame > flame.html",
        "farm model profile bert.tflite --threads 2 --input ids=0..999 --shape ids=1,128",
    )  # fmt: skip
    _add(
        app, "prime", prime,
        "farm model prime",
        "farm model prime my.tflite other.tflite",
        "farm model prime --option device=1 --option precision=fp16",
    )  # fmt: skip
    _add(app, "bisect", bisect_verb.bisect, *bisect_verb.EXAMPLES)
    _add(app, "diff", diff_verb.diff, *diff_verb.EXAMPLES)
    _add(app, "eval", eval_verb.evaluate, *eval_verb.EXAMPLES)
    app.add_typer(skeleton_verbs(), name="skeleton")
    return app


def skeleton_verbs() -> typer.Typer:
    """`farm model skeleton`."""
    app = _group("Share a model without its weights.")
    _add(app, "strip", strip, "farm model skeleton strip my.tflite my.skel --calibrate")
    _add(app, "restore", restore, "farm model skeleton restore my.skel my.tflite")
    return app


def info(
    file: calls.ModelFile,
    delegates: Annotated[
        bool, typer.Option(help="Ask the installed delegates which operators they run.")
    ] = True,
    as_json: calls.Json = False,
) -> int:
    """Describe a model file and the delegates that run it.

    Inputs, outputs, signatures, metadata, operators with versions, quantisation, parameters and MACs, memory
    plan, what each delegate of this machine runs, and what was measured to suit models of its kind.
    """
    from runtime.model.signatures import readable_model
    from runtime.tools.model_info import advice_for, delegate_views, memory_plan, model_facts

    with calls.clear_errors(file), readable_model(file) as (path, model):
        facts = model_facts(model, path.stat().st_size)
        memory, advice = memory_plan(model.subgraphs[0]), advice_for(facts.kind)
        total = sum(len(s.operators) for s in model.subgraphs[:1])
        views = delegate_views(path, total) if delegates else ()
    more = {"memory": asdict(memory), "suits": asdict(advice), "delegates": [asdict(v) for v in views]}
    parts = [_fact_lines(str(file), facts), _memory_lines(memory), _view_lines(views), _advice_lines(advice)]
    return calls.answer(asdict(facts) | more, chain(*parts), as_json)


def kinds(as_json: calls.Json = False) -> int:
    """Show which delegates suit float32, fp16, dynamic-range, integer and quantisation-aware files.

    Measured on one small network in five kinds of files (examples/kinds), on every delegate.
    """
    from runtime.tools.model_info import measured_kinds

    found = measured_kinds()
    return calls.answer([asdict(one) for one in found], _kind_lines(found), as_json)


def plan(
    file: calls.ModelFile,
    delegate: Annotated[str, typer.Option(help="The delegate that would run it.")] = "gpu",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of a CPU device; all by default.")
    ] = None,
    device_class: Annotated[
        Literal["cpu", "gpu"] | None,
        typer.Option(help="Plan for an assumed device, the same everywhere; this machine's by default."),
    ] = None,
    option: calls.Options = None,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Choose kernels as kept times of earlier starts say.")
    ] = False,
    signature: calls.SignatureKey = None,
    as_json: calls.Json = False,
    as_dot: Annotated[bool, typer.Option("--dot", help="Print a graph for Graphviz.")] = False,
) -> int:
    """Show how a delegate would run a model: nothing is compiled, timed or run.

    Partitions, fused and removed operators, kernels with their work-items and memory, what stays on the CPU
    and why, and what LiteRT's documents advise.
    """
    from runtime.model.signatures import readable_model
    from runtime.tools import model_plan

    if as_json and as_dot:
        calls.refuse("--json and --dot are two forms of one plan; give one of them")
    options = calls.options_of(option or [], threads)
    with calls.clear_errors(file), readable_model(file, signature) as (_, model):
        planner = model_plan.planner_of(delegate, options, device_class, is_tuned=tuned)
        found = model_plan.model_plan(model, planner)
        shown = model_plan.dot if as_dot else model_plan.lines
        document = model_plan.document(found, str(file)) if as_json else None
        return calls.answer(document, shown(found, file.name), as_json)


def profile(
    file: calls.ModelFile,
    delegate: Annotated[str, typer.Option(help="The delegate that runs it, or cpu.")] = "gpu",
    then: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DELEGATE[:NAME=VALUE,...]", help="A delegate for what the ones before left; repeatable."
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; the delegate's default.")] = None,
    option: calls.Options = None,
    input_: calls.Inputs = None,
    shape: calls.Shapes = None,
    rounds: Annotated[int, typer.Option(min=1, max=_MOST_ROUNDS, help="Runs of each pass.")] = 10,
    signature: calls.SignatureKey = None,
    form: Annotated[
        Literal["text", "tables", "csv", "flame"],
        typer.Option("--format", help="tables and csv: LiteRT's; flame: a page for a browser."),
    ] = "text",
    litert: Annotated[
        bool, typer.Option("--litert", help="LiteRT's own times of the operators beside these.")
    ] = False,
    as_json: calls.Json = False,
) -> int:
    """Run a model and show what its kernels and operators take.

    A pass of its own: every kernel is run by itself and waited for, so the sum is not the latency of a run,
    which is measured before and printed beside it. Rates are compared with measured peaks of the device.
    """
    from runtime.common import profile as forms
    from runtime.delegates.peers.litert_profile import litert_times
    from runtime.measure.inputs import ranged
    from runtime.model.signatures import readable_model
    from runtime.tools import model_profile

    if litert and form != "text" and not as_json:
        calls.refuse("--litert goes with --format text or with --json")
    options = calls.options_of(option or [], threads)
    rules = calls.rules_of(input_ or [], shape or [])
    further = [calls.delegate_of(text) for text in then or []]
    with calls.clear_errors(file), readable_model(file, signature) as (path, model):
        given = ranged(rules, model.subgraphs[0])
        found = model_profile.profile_file(path, delegate, options, given, rounds, further)
        theirs = litert_times(path, found.inputs, threads, rounds) if litert else ""
        if as_json:
            typer.echo(json.dumps(model_profile.document(found, str(file), theirs), indent=1))
        else:
            keys = (key for key in ("device", "precision", "tuning") if key in found.settings)
            told = ", ".join(f"{key} {found.settings[key]}" for key in keys)
            heading = f"{file.name} on {found.delegate}: {told}"
            for line in forms.written(found.profile, heading, form, theirs):
                # A page has line breaks, which "visible" would escape; tabs divide the tables' columns.
                typer.echo(line if form == "flame" else "\t".join(map(calls.visible, line.split("\t"))))
    return 0


def prime(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="The .tflite or .skel files.")
    ] = None,
    delegate: Annotated[str, typer.Option(help="The delegate that would run them.")] = "gpu",
    option: calls.Options = None,
    as_json: calls.Json = False,
) -> int:
    """Compile kernels for a device ahead of time, so that new models start at once.

    Those that the files need, or without files those of the zoo's networks, which cover most of what other
    networks need. What is kept already is not compiled again; after Ctrl-C the next call goes on from there.
    It takes all cores for about a minute: not beside a measurement.
    Exit code: 0 all kernels are kept, 1 the device's compiler refused some.
    """
    from runtime.tools.priming import networks, prime_device

    with calls.clear_errors():
        chosen = tuple(files or ()) or networks()
        found = prime_device(delegate, calls.options_of(option or [], None), chosen)
    text = (
        f"{found.device}: {found.known + found.compiled} kernels of {len(chosen)} models are kept, "
        f"{found.compiled} of them are new"
    )
    calls.answer({"models": len(chosen), **asdict(found)}, [text], as_json)
    for failure in found.failures:
        typer.echo(f"error: {calls.visible(failure)}", err=True)
    if found.failures:
        raise typer.Exit(1)
    return 0


def strip(
    file: Annotated[Path, typer.Argument(help="The .tflite file.")],
    out: Annotated[Path, typer.Argument(help="The .skel file to write.")],
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of the generated weights.")] = 1,
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Scale the generated weights so that activations stay in range."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is already there.")] = False,
) -> int:
    """Write a skeleton: the file without its weights, each replaced by a recipe.

    Latency, memory and operator coverage do not depend on trained weights, so a few KB stand in for them.
    """
    import hashlib

    from runtime.tools import skeleton

    with calls.clear_errors(file):
        stripped = skeleton.strip(file.read_bytes(), seed)
        scaled: list[str] = []
        if calibrate:
            skeleton.calibrated(stripped, scaled.append)
        content = stripped.skeleton()
        digest = hashlib.sha256(stripped.restored()).hexdigest()
        _write(out, content, force=force)
    held = sum(hole.size for hole in stripped.holes)
    typer.echo(
        f"{calls.visible(str(out))}: {len(content)} bytes for {len(stripped.data)}; {len(stripped.holes)} "
        f"buffers with {held} bytes are generated, {len(scaled)} corrections of scale; restores to sha256 "
        f"{digest}"
    )
    return 0


def restore(
    file: Annotated[Path, typer.Argument(help="The .skel file.")],
    out: Annotated[Path, typer.Argument(help="The .tflite file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is already there.")] = False,
) -> int:
    """Restore a .tflite file from a skeleton, with generated weights."""
    import hashlib

    from runtime.model.skeleton import restore_skeleton

    with calls.clear_errors(file):
        content = restore_skeleton(file.read_bytes())
        _write(out, content, force=force)
    digest = hashlib.sha256(content).hexdigest()
    typer.echo(f"{calls.visible(str(out))}: {len(content)} bytes, sha256 {digest}")
    return 0


def _fact_lines(name: str, facts: ModelFacts) -> Iterator[str]:
    yield f"{name}: {facts.kind}, {_bytes(facts.size_bytes)}, {facts.description or 'no description'}"
    yield (
        f"  {facts.parameters:,} parameters in {_bytes(facts.weight_bytes)}, {facts.macs:,} MACs, "
        f"{facts.tensors} tensors, {facts.subgraphs} subgraph(s)"
    )
    for title, ports in (("input", facts.inputs), ("output", facts.outputs)):
        for port in ports:
            shape = "x".join("?" if d < 0 else str(d) for d in port.signature) or "scalar"
            yield f"  {title} {port.name}: {port.type} {shape} {port.quantization}".rstrip()
    for signature in facts.signatures:
        yield f"  signature {signature.key}({', '.join(signature.inputs)}) -> {', '.join(signature.outputs)}"
    if facts.metadata:
        yield f"  metadata {', '.join(facts.metadata)}"
    yield "  tensors by type: " + ", ".join(f"{count} {what}" for what, count in facts.quantization.items())
    yield "  operators:"
    for entry in facts.operators:
        yield f"    {entry.count:5} {entry.name} v{entry.version}"


def _memory_lines(memory: MemoryPlan) -> Iterator[str]:
    yield (
        f"  memory plan: {_bytes(memory.arena_bytes)} for {len(memory.tensors)} tensors "
        f"({_bytes(memory.unshared_bytes)} unshared); the most at once is {_bytes(memory.peak_bytes)}, "
        f"at operator {memory.peak_operator}; offsets with --json"
    )


def _advice_lines(advice: Advice) -> Iterator[str]:
    yield f"  suits {advice.kind} models: {advice.note}"
    measured = advice.measured
    if measured is None:
        yield f"    no {advice.kind} model has been measured yet; `farm submit` measures this one"
        return
    times = ", ".join(f"{name} {_measured_text(measured, name)} ms" for name in advice.order)
    yield f"    measured: {measured.model}, {measured.threads} thread(s): {times}"
    yield from (f"    no figure of {name}: {why}" for name, why in measured.refused.items())
    yield f"    on {measured.machine}; source {measured.source}"


def _measured_text(measured: Measured, name: str) -> str:
    """Return the milliseconds of a runner, with the operators that it took where it left some."""
    taken = f" ({measured.partial[name]})" if name in measured.partial else ""
    return f"{measured.milliseconds[name]:.3f}{taken}"


def _kind_lines(kinds: Sequence[Advice]) -> Iterator[str]:
    """Yield a table of kinds and runners, the runners in the order of the first kind."""
    from runtime.tools.model_info.advice import KINDS

    told = [(one, one.measured) for one in kinds if one.measured is not None]
    names = list(dict.fromkeys(name for one, measured in told for name in (*one.order, *measured.refused)))
    yield "milliseconds of a call of one small network, by the kind of its file; (operators taken/all)"
    yield f"{'kind':<20}" + "".join(f"{name:>18}" for name in names)
    for one, measured in told:
        cells = (_measured_text(measured, n) if n in measured.milliseconds else "-" for n in names)
        yield f"{one.kind:<20}" + "".join(f"{cell:>18}" for cell in cells)
    measured_of = {one.kind for one, _ in told}
    others = [kind for kind in KINDS if kind not in measured_of]
    if others:
        yield f"not measured yet: {', '.join(others)}"
    reasons = dict.fromkeys((name, why) for _, measured in told for name, why in measured.refused.items())
    yield from (f"no figure of {name}: {why}" for name, why in reasons)
    for machine, source in dict.fromkeys((measured.machine, measured.source) for _, measured in told):
        yield f"on {machine}; source {source}; on yours: python -m benchmarks.model_kinds"


def _view_lines(views: tuple[DelegateView, ...]) -> Iterator[str]:
    if views:
        yield "  delegates:"
    for view in views:
        if view.obstacle and not view.taken:
            yield f"    {view.delegate}: {view.obstacle}"
        else:
            taken = f"{view.taken}/{view.total} operators"
            yield f"    {view.delegate}: {taken} in {view.partitions} partition(s)"
        for reason, count in list(view.reasons.items())[:_SHOWN_REASONS]:
            yield f"      {count} x {reason}"
        if len(view.reasons) > _SHOWN_REASONS:
            yield f"      and {len(view.reasons) - _SHOWN_REASONS} more reasons: see --json"


def _bytes(count: int) -> str:
    return f"{count / 2**20:.2f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"


def _write(out: Path, content: bytes | bytearray, *, force: bool) -> None:
    """Write a new file. One that is there may be the user's only copy, and stays unless `force`."""
    try:
        # Mode x looks and creates in one call: no file of another process can come in between.
        with out.open("wb" if force else "xb") as file:
            file.write(content)
    except FileExistsError:
        calls.refuse(f"{out} exists; --force replaces it")


def _group(text: str) -> typer.Typer:
    return typer.Typer(help=text, no_args_is_help=True, rich_markup_mode=None, context_settings=_SETTINGS)


def _add(app: typer.Typer, name: str, verb: Callable[..., int], *examples: str) -> None:
    app.command(name, epilog="\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples))(verb)
