"""Runs a model under two settings on the same inputs and measures how far apart their outputs are."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from runtime.delegates.base import Array
from runtime.delegates.cpu import CPU
from runtime.delegates.registry import delegate_descriptor
from runtime.errors import FarmRuntimeError
from runtime.judge.agreement import MOVED, Expected, Judgement, judge_each, worst
from runtime.judge.kinds import Kind, output_kinds
from runtime.judge.rules import REDUCED, Rule, arithmetic_of, keeps_state, rule_for
from runtime.measure.inputs import POOL_SIZE, InputRule
from runtime.measure.perturbed import moved_inputs, rounded_constants
from runtime.model.graph import Model
from runtime.tools.model_diff.running import GaussianInputs, Running, Setting
from runtime.tools.model_diff.worker import WorkerError, opened


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of at least one value. `deviation` is that of the population, and 0 where all are equal."""

    count: int
    last: float
    smallest: float
    largest: float
    total: float
    average: float
    deviation: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Summary":
        """Summarise values. Where one is not a number, neither are the figures that it is part of."""
        known = np.asarray(values, np.float64)
        smallest, largest = float(known.min()), float(known.max())
        with np.errstate(invalid="ignore"):
            # The rounding of a mean is no deviation.
            deviation = 0.0 if smallest == largest else float(known.std())
            average = smallest if smallest == largest else float(known.mean())
        return cls(known.size, float(known[-1]), smallest, largest, float(known.sum()), average, deviation)


INVOCATIONS: Final = 3
"""Invokes of each setting on each input set: LiteRT's `invocations_per_run`. All of them are timed, and the
outputs of the last are compared."""

_XNNPACK: Final = Setting("litert", {"threads": 1})
_BUILTIN: Final = Setting("litert", {"threads": 1, "resolver": "builtin"})
_EXACT: Final = Setting("litert", {"threads": 1, "resolver": "reference"})
_OURS: Final = Setting(CPU, {"threads": 1})

REFERENCES: Final = {"litert": _XNNPACK, "builtin-ref": _EXACT, "cpu": _OURS}
"""The references by their names: one thread each. The first is LiteRT's own default."""

_DRAWS: Final = {
    "litert": {MOVED: _XNNPACK, "builtin": _BUILTIN},
    "builtin-ref": {MOVED: _EXACT, "builtin": _BUILTIN},
    "cpu": {MOVED: _OURS},
}
"""The honest runs beside each reference, by whose scatter a result is judged."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two settings: what took effect, and the microseconds of its invokes."""

    setting: Setting
    effective: Mapping[str, str]
    latency: Summary


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """The distance of one output. `error`: LiteRT's mean of |test - reference| of raw values, over the runs.

    The figures of `judgement` are of real values, the worst of all runs.
    """

    name: str
    kind: Kind
    error: Summary
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class Difference:
    """The result. `inputs` is the first input set."""

    runs: int
    seed: int
    reference: Side
    test: Side
    rule: str
    outputs: tuple[OutputDifference, ...]
    inputs: tuple[Array, ...]

    @property
    def judgement(self) -> Judgement:
        """The worst of all outputs."""
        return worst([one.judgement for one in self.outputs])


@dataclass(frozen=True, slots=True)
class Request:
    """The wish: two settings, the number of input sets, the seed and the rules of inputs."""

    test: Setting
    reference: str
    runs: int
    seed: int
    rules: Mapping[str, InputRule]


def difference(
    model: Model, path: Path, request: Request, on_run: Callable[[int], None] = lambda _run: None
) -> Difference:
    """Compare a delegate with a reference; `model` is what `path` holds.

    Raises `InputSpecNeededError`, `WorkerError`, `DelegateError` and what the model raises.
    """
    with ExitStack() as stack:
        reference = stack.enter_context(opened(REFERENCES[request.reference], path, request.rules))
        source = GaussianInputs(reference.inputs, request.rules, request.seed)
        test = stack.enter_context(opened(request.test, path, request.rules))
        draws: dict[str, Running] = {}
        for name, setting in _DRAWS[request.reference].items():
            # A run that this model forbids is no yardstick; the others are.
            with suppress(FarmRuntimeError):
                draws[name] = stack.enter_context(opened(setting, path, request.rules))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="diff-")))
        with suppress(FarmRuntimeError):
            for name, rounded in _rounded_models(path, test.settings.get("precision", "fp32"), folder):
                draws[name] = stack.enter_context(opened(_XNNPACK, rounded, request.rules))
        comparison = _Comparison(model, request, test, reference, draws)
        for size in batches(request.runs):
            comparison.run_batch([source.draw() for _ in range(size)])
            on_run(comparison.runs)
        return comparison.result()


def _rounded_models(path: Path, precision: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """Write the model with its weights in a narrow type, as those of a delegate are; nothing for fp32.

    Raises `NothingToMoveError`.
    """
    type_ = REDUCED.get(precision, "")
    names = (type_, f"{type_}_scaled") if type_ else ()
    for number, name in enumerate(names):
        rounded = folder / f"{name}.tflite"
        rounded.write_bytes(rounded_constants(path.read_bytes(), type_, number))
        yield name, rounded


def batches(runs: int) -> list[int]:
    """Divide runs into batches that are judged together: about as many sets as a measurement has.

    A single set would not show an output that never changes, so there is one only where there is one run.
    """
    count = -(-runs // POOL_SIZE)
    return [runs // count + (i < runs % count) for i in range(count)]


def mean_error(test: Array, reference: Array) -> float:
    """Return LiteRT's error of an output, mean |test - reference| of raw values; None of two shapes."""
    if test.shape != reference.shape:
        return float("nan")
    with np.errstate(invalid="ignore"):
        return float(np.abs(test.astype(np.float64) - reference).mean()) if test.size else 0.0


class _Comparison:
    """Collects figures of one batch of input sets after the other; outputs are kept for a batch alone."""

    def __init__(
        self, model: Model, request: Request, test: Running, reference: Running, draws: dict[str, Running]
    ) -> None:
        self._request = request
        self._test, self._reference, self._draws = test, reference, draws
        self._kinds = output_kinds(model, {})
        self._arithmetic = arithmetic_of(model)
        # A state goes on in every run alike, so honest runs make as many steps.
        self._steps = INVOCATIONS if keeps_state(model) else 1
        self._times: tuple[list[int], list[int]] = ([], [])
        self._errors: list[list[float]] = [[] for _ in reference.facts]
        self._judgements: list[list[Judgement]] = [[] for _ in reference.facts]
        self._first: tuple[Array, ...] = ()
        self._rule = self._current_rule()
        self.runs = 0

    def run_batch(self, sets: Sequence[tuple[Array, ...]]) -> None:
        """Run both settings, and the honest runs, and judge."""
        self._first = self._first or sets[0]
        outputs, references = [], []
        drawn: dict[str, list[tuple[Array, ...]]] = {name: [] for name in self._draws}
        for feeds in sets:
            tested = self._test.run(feeds, INVOCATIONS)
            expected = self._reference.run(feeds, INVOCATIONS)
            self._check(tested.outputs, expected.outputs)
            for times, ran in zip(self._times, (tested, expected), strict=True):
                times.extend(ran.times_us)
            for errors, y, r in zip(self._errors, tested.outputs, expected.outputs, strict=True):
                errors.append(mean_error(y, r))
            outputs.append(tested.outputs)
            references.append(expected.outputs)
            # A copy of the pairs, since one that fails is removed.
            for name, model in list(self._draws.items()):
                try:
                    ran = model.run(moved_inputs(feeds) if name == MOVED else feeds, self._steps)
                    drawn[name].append(ran.outputs)
                except WorkerError:
                    # With its outputs so far: all honest runs must have as many sets.
                    del self._draws[name], drawn[name]
        self.runs += len(sets)
        self._rule = self._current_rule()
        standard = Expected(references, self._reference.facts, drawn, self._kinds)
        for found, judgement in zip(self._judgements, judge_each(standard, outputs, self._rule), strict=True):
            found.append(judgement)

    def result(self) -> Difference:
        """Return the figures of all runs."""
        test, reference = (Summary.of(times) for times in self._times)
        outputs = zip(self._reference.facts, self._kinds, self._errors, self._judgements, strict=True)
        return Difference(
            self.runs,
            self._request.seed,
            Side(REFERENCES[self._request.reference], self._reference.settings, reference),
            Side(self._request.test, self._test.settings, test),
            self._rule.text,
            tuple(
                OutputDifference(fact.name, kind.kind, Summary.of(errors), worst(judgements))
                for fact, kind, errors, judgements in outputs
            ),
            self._first,
        )

    def _check(self, y: Sequence[Array], r: Sequence[Array]) -> None:
        if len(y) != len(r):
            raise FarmRuntimeError(f"{self._request.test.kind} has {len(y)} outputs, the reference {len(r)}")

    def _current_rule(self) -> Rule:
        settings = self._test.settings
        descriptor = delegate_descriptor(self._request.test.kind)
        return rule_for(
            self._arithmetic,
            integer_path=descriptor.integer_path or settings.get("integer_path") == "yes",
            precision=settings.get("precision", "fp32"),
            # XNNPACK rounds integers in its own way; the other two follow LiteRT's reference kernels.
            exact_reference=REFERENCES[self._request.reference] is not _XNNPACK,
            draws=list(self._draws),
        )
