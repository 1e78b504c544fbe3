"""Measures one model from Python, for tests that fail when a model becomes slow or wrong.

    from delegate_farm import assert_accuracy, assert_latency

    def test_the_keyword_model_is_fast_enough():
        assert_latency("models/keywords.tflite", "gpu", max_ms=5)

    def test_the_keyword_model_still_knows_its_words():
        assert_accuracy("models/keywords.tflite", "gpu", dataset="words.npz", at_least=0.9)

`results()` has what was measured as rows for a DataFrame.

Everything goes the way of `farm submit`: the farm under `$FARM_HOME`, this machine or the lab that its
configuration names, also by `FARM_URL`; a result that is there for the same model, options and environment is
reused.
"""

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from agent.wire.plan import LabelledMetric
from agent.wire.private_folder import keep_new_files_private
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.errors import UsageError
from orchestrator.farm.conducting import submit_campaign
from orchestrator.farm.further_blocks import FurtherBlocks
from orchestrator.farm.remote.farm import opened
from orchestrator.farm.submit.submission import Submitted
from orchestrator.manifest.budget import Budget, latency_budget
from orchestrator.manifest.campaign import Campaign, scheme_of
from orchestrator.manifest.load import parse_manifest
from orchestrator.policy.preview import CellPreview
from orchestrator.results.budgets import judge_budgets
from orchestrator.results.export import flat_results
from orchestrator.results.format import labelled
from orchestrator.results.records import CellRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """The settings of a model's measurement.

    `options`: of the delegate, such as `threads`. `inputs`, `signature`: as these keys of `models.yaml`.
    `device`: a device id or glob, needed where several host the delegate. `force`: no earlier result is
    reused. `note` receives a line for each slow step.
    """

    level: Literal["quick", "standard", "publish"] = "quick"
    options: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    signature: str | None = None
    device: str | None = None
    force: bool = False
    note: Callable[[str], None] = lambda _: None


def measure(model: str | Path, delegate: str, how: How | None = None) -> CellRecord:
    """Measure a model on a delegate and return its cell, however it ended.

    `model` is a source as in `models.yaml`; a relative path starts at the working directory. Raises
    `UsageError` for what cannot be measured as it was asked for, or would be on several devices, and
    `UnreachableError` where the farm cannot be reached.
    """
    return _measured(model, delegate, how or How(), {})


def results(campaign: str | None = None) -> list[dict[str, Any]]:
    """Return the cells of a campaign (None: the last; `all`: all), a row each, for `pandas.DataFrame`.

    The columns are those of `farm results --format csv`. Raises `UsageError` where there is no such
    campaign, `UnreachableError` where the farm cannot be reached.
    """
    home = FarmHome.from_environment()
    with opened(home, LabConfig.load(home)) as farm:
        return flat_results(farm.reading.cells(campaign))


class UndecidedError(AssertionError):
    """It is not known whether a limit is kept, or whether outputs are right."""


def assert_latency(
    model: str | Path,
    delegate: str,
    *,
    max_ms: float,
    figure: str = "p50",
    undecided: Literal["fail", "warn"] = "fail",
    how: How | None = None,
) -> CellRecord:
    """Raise `AssertionError` unless a figure (`p50`, `p90`, `init`, …) is at most `max_ms` milliseconds.

    The limit is judged as by `farm submit --budget`: over the whole interval, widened by what others took;
    where it lies inside, blocks are added once. Where that does not decide it, the result is void, or its
    outputs were not judged, `undecided` says whether `UndecidedError` is raised or a warning is given.
    Raises otherwise as `measure`.
    """
    # Before anything is measured: a wrong name of a figure must not cost a minute.
    budget = latency_budget(figure, max_ms)
    cell = _measured(model, delegate, how or How(), {}, budget)
    # One cell and one budget make at most one judgement; an unsupported cell has none.
    (judged,) = judge_budgets([cell], [budget]) or (None,)
    if judged is None:
        raise AssertionError(_ended(cell))
    if judged.outcome == "no_result":
        raise AssertionError(f"{_name(cell)}: there is no {figure} to judge: {judged.said}")
    said = f"{_name(cell)}: {figure} {judged.said}, limit {max_ms:g} ms"
    details = f"details: farm show {cell.cell_id[:10]}"
    if judged.outcome == "exceeded":
        raise AssertionError(f"{said}: exceeded; {details}")
    if judged.outcome == "open":
        _undecided(f'{said}: undecided; measure longer (How(level="standard")) or move the limit', undecided)
    if judged.outcome == "not_judged":
        _undecided(f"{said}: not judged; {details}", undecided)
    return cell


def assert_accuracy(
    model: str | Path,
    delegate: str,
    *,
    dataset: str | Path | None = None,
    metric: LabelledMetric = "top1",
    at_least: float | None = None,
    undecided: Literal["fail", "warn"] = "fail",
    how: How | None = None,
) -> CellRecord:
    """Raise `AssertionError` unless the outputs agree with the reference's; with a `dataset` (as `accuracy:`
    of a campaign file has it), unless also its figure is at least `at_least`.

    The whole 95 % interval of the share must lie above the limit. `undecided`: what to do where the limit
    lies inside it, as with few samples, and where the outputs could not be judged. Raises otherwise as
    `measure`.
    """
    accuracy: dict[str, Any] = {}
    if dataset is not None:
        accuracy = {"accuracy": {"dataset": _source(dataset), "metric": metric}}
        if at_least is not None:
            accuracy["accuracy"]["at_least"] = at_least
    elif at_least is not None:
        raise UsageError("at_least goes with a dataset, of whose labels a share must be predicted")
    cell = _measured(model, delegate, how or How(), accuracy)
    if cell.status != "done" or cell.measurement is None:
        raise AssertionError(_ended(cell))
    if cell.struck_out:
        raise AssertionError(_ended(cell))
    score = cell.measurement.labelled
    if cell.measurement.accuracy.verdict is None:
        why = cell.measurement.accuracy.note
        _undecided(f"{_name(cell)}: its outputs were not judged: {why}", undecided)
    elif score is not None and score.verdict == "inconclusive":
        _undecided(f"{_name(cell)}: {labelled(score)}: undecided; add samples or move the limit", undecided)
    return cell


def _undecided(text: str, then: Literal["fail", "warn"]) -> None:
    if then == "fail":
        raise UndecidedError(f'{text}; with undecided="warn" this is a warning')
    # Level 3 is the line of the test that called `assert_latency` or `assert_accuracy`.
    warnings.warn(text, stacklevel=3)


def _measured(
    model: str | Path, delegate: str, how: How, accuracy: Mapping[str, Any], *budgets: Budget
) -> CellRecord:
    campaign = _campaign(model, delegate, how, accuracy)
    keep_new_files_private()
    home = FarmHome.from_environment()
    with opened(home, LabConfig.load(home)) as farm:
        submitted = submit_campaign(farm, campaign, how.note, force=how.force, require=_require_one)
        wait = farm.wait(how.note)

        def run(submitted: Submitted) -> None:
            farm.running.run(submitted, lambda _event: None, wait)

        run(submitted)
        FurtherBlocks(farm, submitted.campaign_id, how.note, run).decide(budgets)
        # `_require_one` has refused a campaign of any other number of cells.
        (cell,) = farm.reading.cells(submitted.campaign_id)
    return cell


def _require_one(cells: Sequence[CellPreview]) -> None:
    if len(cells) != 1:
        devices = ", ".join(cell.device for cell in cells)
        raise UsageError(f"several devices host the delegate; choose one with How(device=…): {devices}")


def _campaign(model: str | Path, delegate: str, how: How, accuracy: Mapping[str, Any]) -> Campaign:
    """Return the campaign as a file would have it, so that the same rules and messages hold."""
    name = Path(str(model).removeprefix("zoo:")).stem or "model"
    entry = {"id": name, "source": _source(model), **accuracy}
    if how.signature is not None:
        entry["signature"] = how.signature
    document: dict[str, Any] = {
        "version": 1,
        "campaign": name,
        "level": how.level,
        "models": [entry | ({"inputs": dict(how.inputs)} if how.inputs else {})],
        "delegates": {delegate: {"kind": delegate, **how.options}},
    }
    if how.device is not None:
        document["devices"] = [{"name": how.device}]
    # JSON is YAML.
    return parse_manifest(json.dumps(document).encode(), f"measuring {model} on {delegate}")


def _source(given: str | Path) -> str:
    """Return a source that stays valid wherever the process goes; schemes stay as they are."""
    text = os.fspath(given)
    return str(Path(text).absolute()) if scheme_of(text) == "file" else text


def _name(cell: CellRecord) -> str:
    return f"{cell.model} on {cell.delegate}@{cell.device}"


def _ended(cell: CellRecord) -> str:
    reason = "" if cell.reason is None else f" ({cell.reason.code}: {cell.reason.text})"
    return f"{_name(cell)}: {cell.struck_as if cell.struck_out else cell.status}{reason}"
