"""`farm repro`: the local equivalent of a row, as a campaign file or measured at once."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from orchestrator.cli import output
from orchestrator.cli.outcome import end_of_campaign
from orchestrator.cli.progress import measure
from orchestrator.cli.verb import OK, SOME_FAILED, CellWords, Json, Verbose, open_farm, settings
from orchestrator.errors import UnreachableError, UsageError
from orchestrator.farm.again.bundle import Bundle, read_bundle, write_bundle
from orchestrator.farm.again.reproduction import Mismatch, Reproduction, environment_mismatches, reproduction
from orchestrator.farm.conducting import read_campaign, submit_document
from orchestrator.farm.remote.farm import AnyFarm
from orchestrator.results import format as text
from orchestrator.results.comparison import all_well
from orchestrator.results.export import result_json
from orchestrator.results.format import moment, ratio, visible
from orchestrator.results.grading import grade_of
from orchestrator.results.records import CellRecord
from orchestrator.results.speedups import counted_latency
from orchestrator.sources.store import Store


def repro(
    cell: CellWords,
    run: Annotated[
        bool, typer.Option("--run", help="Measure it here now, and end with the speed here over there.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the campaign file; it must be new.")
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle",
            metavar="FILE.zip",
            help="Write all that another machine needs; farm repro FILE.zip --run.",
        ),
    ] = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Reproduce a row of the results on this machine.

    Prints a campaign file of one model, one delegate and one device: the model by its hash, the delegate with
    its options and what it had chosen by timing, the plan, the inputs. Comments say what the row says and
    what cannot be matched here. With --run it is measured at once, as farm submit would. A bundle holds the
    campaign file, the model or its skeleton, its inputs and the row: any machine with a farm measures it.
    Exit code: 0, or with --run 1 where the cell failed or gave wrong output.

    Examples:
      farm repro iris gpu
      farm repro 3f2a --out again.yaml
      farm repro 3f2a --run
      farm repro 3f2a --bundle cell.zip
      farm repro cell.zip --run
    """
    if len(cell) == 1 and cell[0].endswith(".zip"):
        return _run_bundle(Path(cell[0]), run=run, as_json=as_json, verbose=verbose)
    with open_farm() as farm:
        row = farm.reading.cell(" ".join(cell))
        # Before the devices are asked, which may take seconds.
        reproduction(row, None, Store(farm.home.store))
        try:
            present = farm.devices.hello()
        except UnreachableError:
            if run:
                raise
            present = None
        found = reproduction(row, present, Store(farm.home.store))
        text = _text(row, found)
        if out is not None:
            _write(out, text)
        if bundle is not None:
            write_bundle(bundle, row, found)
            output.note(f"{bundle}: measure it on any machine with: farm repro {bundle} --run")
        said: dict[str, Any] = {"row": result_json(row), "document": text, "run": None}
        if run:
            if found.obstacle is not None:
                raise UsageError(f"cell {row.cell_id} cannot be measured here: {found.obstacle}")
            known = [one for one in found.mismatches if one.what not in ("condition", "version")]
            return _run(farm, There.of(row), known, text, said if as_json else None, verbose=verbose)
    if as_json:
        output.emit_json(said | {"unmatched": found.mismatches})
    elif out is None and bundle is None:
        output.raw(text)
    elif out is not None:
        output.line(f"{out}: {len(found.mismatches)} things differ here; measure it: farm submit {out}")
    return OK


@dataclass(frozen=True, slots=True)
class There:
    """The result that is measured again: its p50 in words and in ms, and its environment."""

    cell_id: str
    said: str
    p50_ms: float | None
    environment: Mapping[str, str]

    @classmethod
    def of(cls, row: CellRecord) -> "There":
        """Return a row of this farm."""
        latency = counted_latency(row)
        return cls(row.cell_id, _p50(row), None if latency is None else latency.p50, row.environment)

    @classmethod
    def within(cls, bundle: Bundle) -> "There":
        """Return the row of a bundle."""
        p50 = (bundle.row.get("latency_ms") or {}).get("p50")
        # Anybody may have written the file: what is no time counts as none.
        ms = float(p50) if isinstance(p50, int | float) and p50 > 0 else None
        return cls(
            bundle.cell_id, "none" if ms is None else f"{text.milliseconds(ms)} ms", ms, bundle.environment
        )


def _run_bundle(path: Path, *, run: bool, as_json: bool, verbose: bool) -> int:
    _, lab = settings()
    with tempfile.TemporaryDirectory(prefix="farm-bundle-") as folder:
        found = read_bundle(path, Path(folder), lab.limits.artifact_bytes)
        if not run:
            said = {"row": found.row, "document": found.document, "environment": found.environment}
            line = (
                f"{path}: cell {found.cell_id}, measured on {found.device_name}; measure it here with --run"
            )
            return output.answer(said, visible(line), as_json)
        with open_farm() as farm:
            document = yaml.safe_dump(found.here(farm.devices.hello().devices), sort_keys=False)
            json_so_far = {"row": found.row, "document": document} if as_json else None
            return _run(farm, There.within(found), [], document, json_so_far, verbose=verbose)


def _write(out: Path, text: str) -> None:
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror}; name a new file in a folder that exists") from error


def _text(row: CellRecord, found: Reproduction) -> str:
    # A device's name comes from its driver: a line break in it must not end the comment.
    comments = [" ".join(visible(line).split()) for line in _said(row)]
    unmatched = [f"  {' '.join(visible(str(one)).split())}" for one in found.mismatches]
    comments += ["Not matched here:", *unmatched] if unmatched else ["Nothing differs here."]
    document = yaml.safe_dump(dict(found.document), sort_keys=False, allow_unicode=True)
    return "".join(f"# {line}\n" for line in comments) + document


def _said(row: CellRecord) -> Iterator[str]:
    yield f"Cell {row.cell_id} of campaign {row.campaign} ({row.campaign_id}): {row.model} on {row.delegate}"
    yield f"measured {moment(row.finished_at)} on {row.device} ({row.device_name})"
    graded = grade_of(row)
    yield f"p50 {_p50(row)}{'' if graded is None else f'; {graded.grade}'}"
    for title, values in (("conditions", row.conditions), ("versions", row.versions)):
        yield f"{title}: {'; '.join(f'{name} {value}' for name, value in sorted(values.items()))}"


def _p50(cell: CellRecord) -> str:
    """Return the figure with its unit and interval, or why there is none."""
    latency = counted_latency(cell)
    if latency is None:
        return f"none: {cell.status if cell.reason is None else cell.reason.code}"
    if latency.p50 is None:
        return f"none: {latency.missing.get('p50', 'not measured')}"
    interval = "" if latency.ci95 is None else f" [{text.interval(latency.ci95)}]"
    return f"{text.milliseconds(latency.p50)} ms{interval}"


def _run(
    farm: AnyFarm,
    there: There,
    known: Sequence[Mismatch],
    text: str,
    said: dict[str, Any] | None,
    *,
    verbose: bool,
) -> int:
    """Measure it, and print the results and the ratio; `known`: what differs besides the environment, `said`:
    the JSON so far, None for text.
    """
    submitted = submit_document(farm, text, f"the reproduction of cell {there.cell_id}", output.note)
    output.note(f"campaign {submitted.campaign_id}: as cell {there.cell_id} was measured")
    measure(farm, submitted)
    ended = read_campaign(farm, submitted.campaign_id, output.note)
    # The campaign has one model, one delegate and one device.
    (here,) = ended[1]
    # By now the measuring process has told its environment, and nothing of it is unknown.
    mismatches = [*known, *environment_mismatches(there.environment, here.environment)]
    if said is not None:
        ran = {"cell": result_json(here), "ratio": _ratio(here, there)}
        output.emit_json(said | {"run": ran, "unmatched": mismatches})
        return OK if all_well([here]) else SOME_FAILED
    for one in mismatches:
        output.note(f"not matched: {one}")
    exit_code = end_of_campaign(*ended, as_json=False, verbose=verbose)
    output.line(_ratio_line(here, there))
    return exit_code


def _ratio(here: CellRecord, there: There) -> float | None:
    """Return how many times as fast it is here."""
    latency = counted_latency(here)
    p50 = None if latency is None else latency.p50
    return there.p50_ms / p50 if there.p50_ms and p50 else None


def _ratio_line(here: CellRecord, there: There) -> str:
    found = _ratio(here, there)
    value = "no ratio" if found is None else ratio(found)
    p50s = f"p50 {_p50(here)} here, {there.said} there"
    return f"speed here over there: {value}; {p50s}; unpaired, without a verdict"
