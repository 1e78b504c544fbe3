"""Builds the campaign that repeats a result here; lists the conditions that differ."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent.wire.measurement import Measurement
from agent.wire.messages import AgentHello, Device
from agent.wire.plan import INPUT_SETS, InputSpec, MeasurePlan
from agent.wire.provenance import CONDITIONS
from orchestrator.errors import FarmError, UsageError
from orchestrator.manifest.delegates import UnusableKindError, declared_options, known_kinds
from orchestrator.manifest.measure_keys import pass_keys
from orchestrator.manifest.schema import NAME_PATTERN
from orchestrator.results.records import CellRecord
from orchestrator.sources.store import Store
from orchestrator.sources.zoo import zoo_models

_CHOICES: Final = "choices"
"""The option of a delegate that takes what an earlier start of it chose by timing."""

NOT_RECORDED: Final = "not recorded"
BEFORE_A_RUN: Final = "not known before a run"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A thing that differs here: a condition, version, delegate, device, model, data, tuning, baseline."""

    what: str
    name: str
    there: str
    here: str

    def __str__(self) -> str:
        return f"{self.what} {self.name}: {self.there} there; {self.here} here"


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A campaign of one cell, what it cannot match, and the `obstacle` to running it here, or None."""

    document: Mapping[str, Any]
    mismatches: tuple[Mismatch, ...]
    obstacle: str | None


def reproduction(cell: CellRecord, present: AgentHello | None, store: Store) -> Reproduction:
    """Build the local equivalent of a cell's result on the present devices (None: not known).

    Raises `UsageError` for a cell without a result, `FarmError` where the farm does not tell how it was
    measured.
    """
    measured, plan = _measured(cell)
    device = _device(cell, () if present is None else present.devices)
    source, no_model = model_source(cell, store)
    accuracy, no_data = _accuracy(plan, store)
    choices, tunings = _choices(cell, measured, device)
    no_host = _no_host(cell, present, device)
    missing = [found for found in (no_model, no_data, no_host) if found is not None]
    document: dict[str, Any] = {
        "version": 1,
        "campaign": f"repro-{cell.cell_id}",
        "level": plan.level,
        # The result that is to be reproduced would otherwise be reused.
        "defaults": {"reuse": "never"},
        "models": [
            {"id": cell.model, "source": source, "sha256": cell.model_sha256, "measure": measure_block(plan)}
            | inputs_entry(cell, plan, store)
            | ({"accuracy": accuracy} if accuracy else {})
        ],
        "delegates": {delegate_name(cell): {"kind": cell.delegate_kind, **cell.delegate_options, **choices}},
    }
    if device is not None:
        document["devices"] = [{"name": device.device_id}]
    mismatches = (*missing, *_machine(cell, device), *tunings, *_baseline(measured))
    # Without labelled data the model still runs, only unjudged by it.
    hindering = [found for found in (no_model, no_host) if found is not None]
    return Reproduction(document, mismatches, "; ".join(map(str, hindering)) or None)


def environment_mismatches(
    there: Mapping[str, str], here: Mapping[str, str], unknown: str = NOT_RECORDED
) -> Iterator[Mismatch]:
    """Every condition and version that differs; `unknown`: what is said of one that is not known here."""
    for name in sorted(there.keys() | here.keys()):
        if there.get(name) != here.get(name):
            what = "condition" if name in CONDITIONS else "version"
            yield Mismatch(what, name, there.get(name, NOT_RECORDED), here.get(name, unknown))


def _measured(cell: CellRecord) -> tuple[Measurement, MeasurePlan]:
    if cell.measurement is None:
        raise UsageError(
            f"cell {cell.cell_id} has no result that could be reproduced: it is {cell.status}; "
            f"see farm show {cell.cell_id} --why"
        )
    if cell.imported is not None:
        raise UsageError(
            f"cell {cell.cell_id} was imported from {cell.imported.file} of {cell.imported.tool}: no setting "
            "of this farm gave it; measure the model here: farm submit FILE"
        )
    if cell.plan is None:
        raise FarmError(
            f"the farm does not tell how cell {cell.cell_id} was measured: it runs an older release; "
            "upgrade it, or run this on the server"
        )
    return cell.measurement, cell.plan


def _device(cell: CellRecord, devices: Sequence[Device]) -> Device | None:
    """Return the present device that hosts the delegate and is most like the recorded one."""

    def unlike(device: Device) -> tuple[bool, bool, int]:
        here = device.environment_of(cell.delegate_kind, cell.delegate_options)
        found = environment_mismatches(cell.conditions, {n: v for n, v in here.items() if n in CONDITIONS})
        # False comes before True.
        return device.device_id != cell.device, device.name != cell.device_name, len(list(found))

    return min((d for d in devices if cell.delegate_kind in d.delegates), key=unlike, default=None)


def _no_host(cell: CellRecord, present: AgentHello | None, device: Device | None) -> Mismatch | None:
    kind = cell.delegate_kind
    if kind not in known_kinds():
        return Mismatch("delegate", kind, "installed", "not installed")
    if device is not None:
        return None
    if present is None:
        return Mismatch("device", cell.device, cell.device_name, "no agent reports its devices")
    why = next((found.reason for found in present.missing if found.kind == kind), "no device hosts it")
    return Mismatch("delegate", kind, f"on {cell.device}", why)


def _machine(cell: CellRecord, device: Device | None) -> Iterator[Mismatch]:
    """Yield the differences between the recorded device with its environment and the present one."""
    if device is None:
        return
    there, here = (cell.device, cell.device_name), (device.device_id, device.name)
    for what, before, now in zip(("id", "name"), there, here, strict=True):
        if before != now:
            yield Mismatch("device", what, before, now)
    yield from environment_mismatches(
        cell.environment, device.environment_of(cell.delegate_kind, cell.delegate_options), BEFORE_A_RUN
    )


def model_source(cell: CellRecord, store: Store) -> tuple[str, Mismatch | None]:
    """Return the source of the model. The hash beside it pins the file, whatever the source is."""
    sha256 = cell.model_sha256
    try:
        zoo = next((model.name for model in zoo_models().values() if model.sha256 == sha256), None)
    except FarmError:
        # This installation has no zoo; the store may have the file all the same.
        zoo = None
    if zoo is not None:
        return f"zoo:{zoo}", None
    if store.find(sha256) is not None:
        return str(store.path(sha256).absolute()), None
    file = f"{sha256[:12]}.tflite"
    here = f"not in the store {store.root}: put the file beside this campaign file as {file}"
    return file, Mismatch("model", cell.model, f"sha256 {sha256[:12]}", here)


def _accuracy(plan: MeasurePlan, store: Store) -> tuple[dict[str, Any], Mismatch | None]:
    data = plan.labelled
    if data is None:
        return {}, None
    if store.find(data.sha256) is None:
        return {}, Mismatch(
            "data", "labelled", f"sha256 {data.sha256[:12]}", "not in the store, and left out"
        )
    # What is left out has its default; there is no baseline to drop from.
    asked = data.model_dump(mode="json", exclude_defaults=True, exclude={"size_bytes", "max_drop"})
    return {"dataset": str(store.path(data.sha256).absolute()), "metric": data.metric} | asked, None


def _choices(
    cell: CellRecord, measured: Measurement, device: Device | None
) -> tuple[dict[str, str], tuple[Mismatch, ...]]:
    """Return the option by which the delegate takes the stored choices, and the mismatches that remain."""
    if not measured.tunings or _CHOICES in cell.delegate_options or not _takes_choices(cell.delegate_kind):
        return {}, ()
    outcomes = len({tuning.sha256 for tuning in measured.tunings})
    stored = [tuning for tuning in measured.tunings if tuning.choices]
    if not stored:
        return {}, (Mismatch("tuning", _CHOICES, "too long to be stored", "chosen by timing anew"),)
    # Of another device, whose kernels have other names and sizes, they would be no choices at all.
    if device is not None and device.name != cell.device_name:
        return {}, (Mismatch("tuning", _CHOICES, f"those of {cell.device_name}", "chosen by timing anew"),)
    chosen = max(stored, key=lambda tuning: tuning.processes).choices
    several = Mismatch("tuning", _CHOICES, f"{outcomes} outcomes", "the one that most processes ran")
    return {_CHOICES: str(chosen)}, (several,) if outcomes > 1 else ()


def _takes_choices(kind: str) -> bool:
    try:
        return kind in known_kinds() and _CHOICES in declared_options(kind)
    except UnusableKindError:
        return False


def _baseline(measured: Measurement) -> Iterator[Mismatch]:
    if measured.ratio is not None:
        yield Mismatch("baseline", measured.ratio.against, "measured in blocks with it", "measured alone")


def measure_block(plan: MeasurePlan) -> dict[str, Any]:
    """Every count, so that the file asks for the same where a later release has other levels."""
    return {
        "blocks": {"min": plan.min_blocks, "max": plan.max_blocks},
        "target": plan.target,
        **({"rounds": plan.rounds} if plan.rounds_fixed else {}),
        "slice": {"min_runs": plan.slice_runs, "seconds": plan.slice_seconds},
        "tunings": plan.tunings,
        "warmup": {"runs": plan.warmup_runs, "min_seconds": plan.warmup_seconds},
        **dict(pass_keys(plan)),
    }


def inputs_entry(cell: CellRecord, plan: MeasurePlan, store: Store) -> dict[str, Any]:
    """Return what a model's entry in a `models.yaml` says of its inputs, as far as that is not the usual."""
    inputs = {name: input_block(spec, store) for name, spec in cell.inputs.items()}
    sets = {} if plan.input_sets == INPUT_SETS else {"input_sets": plan.input_sets}
    return ({"inputs": inputs} if inputs else {}) | sets


def input_block(spec: InputSpec, store: Store) -> dict[str, Any]:
    """Return the data of one input as a `models.yaml` has it, a file beside it where the store has none."""
    shape = {} if spec.shape is None else {"shape": list(spec.shape)}
    if spec.data is not None:
        sha256 = spec.data.sha256
        is_here = store.find(sha256) is not None
        return shape | {"data": str(store.path(sha256).absolute() if is_here else f"{sha256[:12]}.npy")}
    random: dict[str, Any] = {"seed": spec.seed}
    if spec.distribution != "uniform":
        random["distribution"] = spec.distribution
    if spec.low is not None and spec.high is not None:
        random["range"] = [spec.low, spec.high]
    return shape | {"random": random}


def delegate_name(cell: CellRecord) -> str:
    """Return the delegate's name, if a file may say it; a listed option may have put more into it."""
    return cell.delegate if re.fullmatch(NAME_PATTERN, cell.delegate) else cell.delegate_kind
