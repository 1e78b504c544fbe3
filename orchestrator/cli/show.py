"""`farm show`: one cell, in the ten lines that say all of it or in full, or the file of a campaign."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from agent.wire.measurement import Measurement, ProcessSamples
from orchestrator.cli import output
from orchestrator.cli.logs import show_logs
from orchestrator.cli.verb import OK, CellWords, Json, open_farm
from orchestrator.errors import UsageError
from orchestrator.farm.remote.farm import AnyFarm
from orchestrator.policy.why import sentences
from orchestrator.results import format as text
from orchestrator.results import wording
from orchestrator.results.answer.entries import missing
from orchestrator.results.comparison import accuracy_text
from orchestrator.results.cost_figures import PEAK_MEMORY
from orchestrator.results.detail_lines import init_lines, spread_lines
from orchestrator.results.export import cell_document, manifest_json
from orchestrator.results.grading import grade_of, p50_grade
from orchestrator.results.metrics import in_section, leading
from orchestrator.results.passes import PASS_RESULTS
from orchestrator.results.profiles import advice_lines, profile_heading, profile_of
from orchestrator.results.records import WRONG_OUTPUT, CellRecord
from orchestrator.results.speedups import paired_speedup, stored_ratio
from orchestrator.results.wording import first_line, grouped
from runtime.common.profile import Form, written


def show(
    cell: CellWords,
    manifest: Annotated[
        bool,
        typer.Option(
            "--manifest", help="Print the campaign file as it was submitted; CELL is then a campaign."
        ),
    ] = False,
    everything: Annotated[
        bool,
        typer.Option("--all", "-a", help="Also print every figure, fallback, setting, attempt and sample."),
    ] = False,
    profile: Annotated[
        Form | None,
        typer.Option(
            "--profile",
            help="Print its profile: as text, as LiteRT's tables or csv, or as a flame graph for a browser.",
        ),
    ] = None,
    answers: Annotated[
        bool,
        typer.Option(
            "--answers",
            help="Print its answers to labelled data, a line of JSON each, then those that the baseline "
            "answered otherwise.",
        ),
    ] = False,
    why: Annotated[
        bool, typer.Option("--why", help="Print why it waits, what blocks it, and for how long.")
    ] = False,
    logs: Annotated[
        bool, typer.Option("--logs", help="Print what happened to it, and what its runners wrote.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="With --logs: continue until the cell has ended.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Show one cell in ten lines, or with --all in full.

    The ten lines say what was measured and how, its verdict, grade, accuracy, delegation, start and memory;
    with labelled data, one more has the score.
    A profile is there where the campaign asked for one, by `measure: {profile: kernels}`. Of a cell that has
    not ended, --why has two clocks: time in the queue counts towards no timeout of attempts. With --logs and
    --json, one object per line.

    Examples:
      farm show iris gpu
      farm show 3f2a
      farm show iris gpu --why
      farm show 3f2a --logs -f
      farm show nightly --manifest
      farm show iris gpu --profile flame > iris.html
      farm show iris gpu --answers | grep '"changed"'
    """
    asked = {"--manifest": manifest, "--profile": profile, "--answers": answers, "--why": why, "--logs": logs}
    chosen = [option for option, is_asked in asked.items() if is_asked]
    if len(chosen) > 1:
        raise UsageError(f"{chosen[0]} and {chosen[1]} print different things; give one of them")
    if follow and not logs:
        raise UsageError("--follow goes with --logs")
    with open_farm() as farm:
        if manifest:
            return _manifest(farm, " ".join(cell), as_json)
        if why:
            answer = farm.reading.why(" ".join(cell))
            return output.answer(answer, sentences(answer), as_json)
        record = farm.reading.cell(" ".join(cell))
        if logs:
            show_logs(farm, record.cell_id, as_json, follow=follow)
            return OK
        if profile is not None:
            return _profile(record, profile)
        if answers:
            for one in farm.reading.answers(record):
                output.emit_json_line(one)
            return OK
        # Only where they are printed: of a farm elsewhere they are fetched.
        processes = farm.reading.samples(record) if everything or as_json else []
    if as_json:
        output.raw(cell_document(record, processes))
    else:
        output.line("\n".join(f"{name:<10}  {said}" for name, said in brief(record)))
        if everything:
            output.line("\n" + cell_text(record, processes))
    return OK


def _profile(cell: CellRecord, form: Form) -> int:
    found = profile_of(cell)
    if isinstance(found, str):
        raise UsageError(f"cell {cell.cell_id} has no profile: {found}")
    for line in written(found, profile_heading(cell), form):
        output.raw(f"{line}\n")
    return OK


def _manifest(farm: AnyFarm, ref: str, as_json: bool) -> int:
    """Print the file of a campaign; its JSON form also names where each model comes from."""
    found = farm.reading.manifest(ref)
    if found is None:
        raise UsageError(
            f"campaign {ref!r} has no file: it was submitted before files were kept, or without one"
        )
    if as_json:
        output.emit_json(manifest_json(found))
    else:
        output.raw(found.document)
    return OK


_SHOWN_SAMPLES = 8
"""Samples of a process on its line, enough to see their scale; `farm show --json` has all of them."""

_SHOWN_LOG_LINES = 20
"""Lines of a failed attempt's log, from its end, where the cause is; `farm show --logs` shows all of it."""


def cell_text(cell: CellRecord, processes: Sequence[ProcessSamples]) -> str:
    """Write blocks of `name  value` lines; the latency of a wrong output is not shown."""
    blocks = [_head(cell)]
    if cell.measurement is not None:
        blocks += [_figures(cell), _judgement(cell, cell.measurement)]
    blocks += [_samples(processes), _attempts(cell)]
    blocks += [_pairs("conditions", cell.conditions), _pairs("versions", cell.versions)]
    blocks.append(_pairs("recorded", cell.facts))
    return "\n\n".join("\n".join(block) for block in (list(b) for b in blocks) if block)


def _head(cell: CellRecord) -> Iterator[str]:
    yield _line("cell", cell.cell_id)
    yield _line("campaign", f"{cell.campaign} ({cell.campaign_id})")
    file = (
        f"{text.byte_count(cell.model_bytes)}  sha256 {cell.model_sha256}" if cell.model_sha256 else "no file"
    )
    yield _line("model", f"{cell.model}  {file}")
    options = ", ".join(f"{key}={value}" for key, value in cell.delegate_options.items())
    yield _line("delegate", f"{cell.delegate}  kind {cell.delegate_kind}{'  ' + options if options else ''}")
    yield _line("device", f"{cell.device}  {cell.device_name}")
    yield _line("level", cell.level)
    yield _line("status", cell.status)
    if cell.kept:
        yield _line("", cell.kept)
    elif cell.reason is not None:
        yield _line("reason", f"{cell.reason.code}: {cell.reason.text}")
    if cell.struck_out and cell.struck_as == WRONG_OUTPUT:
        yield _line("find", _bisection(cell))
    if cell.reused_from is not None:
        yield _line("reused from", f"cell {cell.reused_from}")


def _bisection(cell: CellRecord) -> str:
    """Return the command that names the guilty operator of a wrong output."""
    given = (f"{name}={value}" for name, value in cell.delegate_options.items())
    words = ["--delegate", cell.delegate_kind, *(word for one in given for word in ("--option", one))]
    return f"farm model bisect FILE {shlex.join(words)}"


def _figures(cell: CellRecord) -> Iterator[str]:
    metrics = in_section("latency", "resources", "memory")
    if cell.struck_out:
        yield _line("latency", f"struck out: {cell.struck_as}")
        metrics = tuple(metric for metric in metrics if not metric.void_if_wrong)
    lacking: dict[str, list[str]] = {}
    for metric in metrics:
        if metric.read(cell) is not None:
            yield _line(metric.label, metric.full_text(cell))
        else:
            lacking.setdefault(metric.full_text(cell), []).append(metric.label)
    # A reason once: a delegate without a border of memory lacks all figures of copies.
    yield from (_line(", ".join(labels), why) for why, labels in lacking.items() if len(labels) == 1)
    yield from (
        _line("", f"{why} ({', '.join(labels)})") for why, labels in lacking.items() if len(labels) > 1
    )
    yield from (_line(name, said) for name, said in init_lines(cell))
    yield from (_line(name, said) for one in PASS_RESULTS for name, said in one.told(cell))
    if cell.measurement is not None:
        yield from (_line(name, said) for name, said in spread_lines(cell.measurement))
    ratio = stored_ratio(cell)
    if ratio is not None:
        interval = "" if ratio.ci95 is None else f"  [{text.ratio_interval(ratio.ci95)}]"
        blocks = f"{text.counted(ratio.blocks, 'block')}, seed {ratio.seed}"
        yield _line("speed-up", f"{text.ratio(ratio.median)}{interval}  over {ratio.against}")
        yield _line("", f"{paired_speedup(ratio, cell).verdict}; paired, {blocks}")


def _judgement(cell: CellRecord, m: Measurement) -> Iterator[str]:
    a = m.accuracy
    yield _line("accuracy", f"{accuracy_text(m)}  {a.rule or a.note}")
    if a.reference is not None:
        figures = ", ".join(f"{metric.label} {metric.short_text(cell)}" for metric in in_section("output"))
        yield _line("against", f"{a.reference}: {figures}")
    if m.labelled is not None:
        yield _line("labelled data", text.labelled(m.labelled))
    if m.delegation is not None:
        d = m.delegation
        counts = f"{d.delegated_ops} of {d.total_ops} operators in {d.partitions} partition(s)"
        yield _line("delegation", f"{d.status}: {counts}")
        for group in grouped(d.fallbacks):
            yield _line("", f"{group.named}: {group.reason}")
            if group.option:
                yield _line("", f"  another option of the delegate: {group.option}")
    if m.advice is not None:
        for number, said in enumerate(advice_lines(m.advice)):
            yield _line("" if number else "advice", said)
    if m.quality is not None:
        yield from (_line("void", reason) for reason in m.quality.void)
        yield from (_line("observed", fact) for fact in m.quality.facts)
        yield _line("seen", ", ".join(m.quality.seen))
        yield from (_line("not seen", why) for why in m.quality.unseen)
    for key, value in m.settings.items():
        yield _line(f"set {key}", value)
    for warning in m.warnings:
        yield _line("warning", warning)


def _samples(processes: Sequence[ProcessSamples]) -> Iterator[str]:
    for process in processes:
        first = ", ".join(text.sample(value) for value in process.invoke_ns[:_SHOWN_SAMPLES])
        more = ", ..." if len(process.invoke_ns) > _SHOWN_SAMPLES else ""
        yield _line(
            f"process {process.index + 1}",
            f"{process.cache}, {len(process.invoke_ns)} samples in ms: {first}{more}",
        )


def _attempts(cell: CellRecord) -> Iterator[str]:
    for attempt in cell.attempts:
        reason = "" if attempt.reason is None else f"  {attempt.reason.code}: {attempt.reason.text}"
        yield _line(f"attempt {attempt.number}", f"{attempt.state}  {text.moment(attempt.ended_at)}{reason}")
        if attempt.log_tail and attempt.state == "failed":
            yield from (_line("", line) for line in attempt.log_tail.splitlines()[-_SHOWN_LOG_LINES:])


def _pairs(title: str, values: dict[str, str]) -> Iterator[str]:
    if values:
        yield title
        yield from (_line(f"  {key}", value) for key, value in sorted(values.items()))


def _line(name: str, value: str) -> str:
    return f"{name:<16}  {value}".rstrip()


_LONGEST = 200
"""Characters of a reason or rule in the ten lines; `--all` has it whole."""

_AGAINST = {"faster": "faster than", "slower": "slower than", "same": "the same as", "open": "open against"}
"""What a verdict says of a delegate and the baseline that follows."""


def brief(cell: CellRecord) -> list[tuple[str, str]]:
    """Return the ten lines, or eleven, as pairs of a name and a text; fewer without a figure."""
    return [(name, said) for name, said in _lines(cell) if said]


def _lines(cell: CellRecord) -> Iterator[tuple[str, str]]:
    m = cell.measurement
    yield "model", f"{cell.model}  (cell {cell.cell_id}, {cell.level}, {cell.campaign})"
    options = "".join(f", {key}={value}" for key, value in cell.delegate_options.items())
    where = cell.device if not cell.device_name else f"{cell.device_name} ({cell.device})"
    yield "delegate", f"{cell.delegate}{options}  on {where}"
    yield "verdict", _verdict(cell)
    if m is None:
        return
    if missing(cell) is None:
        graded, own = grade_of(cell), p50_grade(cell)
        yield leading(cell).label, _median(cell)
        more = (
            "" if own is None or stored_ratio(cell) is None else f"; the p50 alone {wording.short_grade(own)}"
        )
        yield "grade", "" if graded is None else f"{wording.grade_text(graded)}{more}"
    about = first_line(m.accuracy.rule or m.accuracy.note, _LONGEST)
    yield "accuracy", f"{accuracy_text(m)}  {about}".rstrip()
    if m.labelled is not None:
        yield "labelled", text.labelled(m.labelled)
    if cell.imported is None:
        yield "delegation", _delegation(m)
    else:
        # `processes` is of the import, not of the tool (`results.imports.reports`).
        told = (f"{name} {value}" for name, value in m.settings.items() if name != "processes")
        yield "told", ", ".join(told)
    if cell.struck_out and cell.struck_as == WRONG_OUTPUT:
        yield "find", _bisection(cell)
    else:
        yield "start", _start(m)
    yield "memory", PEAK_MEMORY.full_text(cell)
    yield "measured", wording.measured_text(m)


def _verdict(cell: CellRecord) -> str:
    """Return the ratio over the baseline; else the state, or why there is no figure."""
    lacks, stored = missing(cell), stored_ratio(cell)
    if lacks is not None:
        return first_line(f"{lacks.word}: {lacks.reason}" if lacks.reason else lacks.word, _LONGEST)
    if stored is None:
        return f"{cell.status}; no ratio: it is the baseline, or was measured without one"
    found = paired_speedup(stored, cell)
    interval = "" if stored.ci95 is None else f", 95 % interval {text.ratio_interval(stored.ci95)}"
    more = f"; {decided}" if (decided := wording.decides(found)) else ""
    against = f"{_AGAINST.get(found.verdict, wording.WORDS[found.verdict])} {found.against}"
    return f"{wording.SIGNS[found.verdict]} {wording.ratio_text(found)} {against}{interval}{more}"


def _median(cell: CellRecord) -> str:
    times = cell.measurement.latency_ms if cell.measurement is not None else None
    interval = None if times is None else times.ci95
    more = "" if interval is None else f"  95 % interval {text.interval(interval)}"
    return leading(cell).full_text(cell) + more


def _delegation(m: Measurement) -> str:
    if m.delegation is None:
        return "the delegate takes the whole model"
    d = m.delegation
    counts = f"{d.status}: {d.delegated_ops} of {d.total_ops} operators in {d.partitions} partition(s)"
    if m.advice is not None:
        counts += f"; {m.advice.text}"
    groups = grouped(d.fallbacks)
    if not groups:
        return counts
    more = f" (and {len(groups) - 1} more: --all)" if len(groups) > 1 else ""
    return f"{counts}; on the CPU {first_line(f'{groups[0].named}: {groups[0].reason}', _LONGEST)}{more}"


def _start(m: Measurement) -> str:
    times = m.latency_ms
    parts = (("cold", times.init), ("warm", times.init_warm), ("the first invoke", times.first))
    return ", ".join(f"{text.short_time(value)} {name}" for name, value in parts if value is not None)
