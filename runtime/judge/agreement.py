"""Judges whether a result agrees with its reference (the rules are described in docs/measuring.md).

Each output of each input set is judged on its own, by every rule of `bounds.py`: the norm of its errors, the
largest single one, norms of slices, mean and slope. What is allowed is a floor that follows from the
arithmetic (`rules.py`), and what honest runs of the same model show. An output of indices is judged by the
share of those that are equal, the outputs of a detector by their matches (`kinds.py`, `detections.py`).

Values that are not finite match in place and kind, and so do shape and dtype. Not judged is an output whose
reference has no finite value, or is the same for every input set; whose honest runs differ by too much; which
lies as near to a wrong output (`decoys.py`) as to its reference.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.base import Array
from runtime.judge import bounds, figures
from runtime.judge.decoys import nearest_decoy
from runtime.judge.detections import Compared, Detections, Matching, compared
from runtime.judge.kinds import OutputKind, Role, kinds_by_type
from runtime.judge.rules import Rule, score_bound

FLOAT_QUANTA: Final = 255
"""Steps into which the range of a float output of a quantised or hybrid model is divided: its quantum is one
of them, as if the output were 8 bits wide."""

PEER: Final = "xnnpack"
"""The honest run whose distance from the reference is told beside an output's own."""

MOVED: Final = "moved"
"""The honest run whose inputs, or weights, were moved by `MOVE`."""

AMPLIFIES: Final = "the model amplifies rounding"
"""How the reason begins for which an output is not judged by its honest runs."""

_OTHER_INPUTS: Final = "; give it natural ones (inputs: {NAME: {data: FILE}})"
"""Ends the reason for which an output is not judged that random inputs are likely to cause."""

Verdict = Literal["pass", "fail"]


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """Name and affine quantisation of one output; scale 0 means it is not quantised."""

    name: str
    scale: float = 0.0
    zero_point: int = 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """The worst figures over outputs and sets, and the verdict. None: not defined, or not judged (see note).

    `margin` is the error over its bound, by the rule of which it takes most; `mean_abs` is the mean of
    |y - r|, `nonfinite` counts the values of y that are NaN or Inf, `top1` is the share of rows (the last
    axis) whose largest value is at the same place, `peer_rel_l2` is the relative distance of XNNPACK from the
    same reference. `equal` is the share of equal elements, of an index; `matching` that of detections.
    """

    max_abs: float | None
    rel_l2: float | None
    cosine: float | None
    verdict: Verdict | None
    rule: str
    note: str = ""
    mean_abs: float | None = None
    top1: float | None = None
    nonfinite: int = 0
    peer_rel_l2: float | None = None
    margin: float | None = None
    equal: float | None = None
    matching: Matching | None = None


Outputs = Sequence[Sequence[Array]]
"""Output i of input set k at [k][i]."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The standard for outputs: the reference's, and those of honest runs by their names.

    Figures of the runs are kept: outputs of several processes are judged by the same. `kinds`: those of the
    outputs; empty where nothing is known but their types.
    """

    references: Outputs
    facts: Sequence[OutputFacts]
    draws: Mapping[str, Outputs] = field(default_factory=dict)
    kinds: Sequence[OutputKind] = ()
    _figures: dict[tuple[int, tuple[str, ...]], bounds.Draws] = field(
        default_factory=dict, compare=False, repr=False
    )

    def kind(self, i: int) -> OutputKind:
        """Return the kind of output `i`."""
        if self.kinds:
            return self.kinds[i]
        values = zip(self.references[0], self.facts, strict=True)
        return kinds_by_type([(value.dtype.kind, fact.scale) for value, fact in values])[i]

    def detections(self) -> dict[Role, int]:
        """Return the places of the outputs that are detections together, by their roles."""
        return {kind.role: i for i, kind in enumerate(self.kinds) if kind.role is not None}

    def others(self, k: int, i: int) -> list[Array]:
        """Output i's references of every input set but `k`."""
        return [values[i] for j, values in enumerate(self.references) if j != k]

    def drawn(self, i: int, names: Sequence[str]) -> bounds.Draws:
        """Return the figures of the runs of these names for output `i`, one that is of no use left out."""
        key = (i, tuple(names))
        if key not in self._figures:
            self._figures[key] = self._drawn(i, names)
        return self._figures[key]

    def _drawn(self, i: int, names: Sequence[str]) -> bounds.Draws:
        of_set, scales = [], []
        for k, values in enumerate(self.references):
            r = _real(values[i], self.facts[i])
            known = np.isfinite(r)
            runs = [self.draws[name][k][i] for name in names]
            reals = [_real(run, self.facts[i]) for run in runs if run.shape == values[i].shape]
            finite = [run for run in reals if np.isfinite(run[known]).all()] if known.any() else []
            safe = np.where(known, r, 0.0)
            of_set.append([figures.figures(np.where(known, run, 0.0) - safe, safe) for run in finite])
            scales.append(figures.root_mean_square(safe))
        return bounds.Draws(of_set, scales)

    def amplification(self, i: int, k: int) -> float | None:
        """Return by how much more than the inputs the outputs moved, as shares; None where nothing tells."""
        moved = self.draws.get(MOVED)
        # A draw may have another shape than the reference, where shapes follow from values.
        if moved is None or moved[k][i].shape != self.references[k][i].shape:
            return None
        r = _real(self.references[k][i], self.facts[i])
        with np.errstate(invalid="ignore"):
            change = np.nan_to_num(_real(moved[k][i], self.facts[i]) - r)
        norm = figures.root_mean_square(np.nan_to_num(r))
        return figures.root_mean_square(change) / norm / bounds.MOVE if norm > 0.0 else None


def judge(
    expected: Expected, outputs: Outputs, rule: Rule, *, sets: Sequence[int] | None = None
) -> Judgement:
    """Compare output sets with what is expected of them; see `judge_each`."""
    return worst(judge_each(expected, outputs, rule, sets=sets))


def judge_each(
    expected: Expected, outputs: Outputs, rule: Rule, *, sets: Sequence[int] | None = None
) -> list[Judgement]:
    """Return one judgement for each output of the model, over all sets; a single one where the count differs.

    `sets`: the input sets that `outputs` are of, all of them where it is None. The note of a failure is that
    of the first set that fails; that of an output which is not judged says why.
    """
    references, facts = expected.references, expected.facts
    chosen = range(len(references)) if sets is None else sets
    if len(outputs) != len(chosen) or any(len(y) != len(facts) for y in (*outputs, *references)):
        return [Judgement(None, None, None, "fail", rule.text, "the number of outputs differs")]
    if not facts:
        return [Judgement(None, None, None, None, rule.text, "the model has no outputs")]
    varying = variation(references)
    detected = expected.detections() if rule.kind != "bit_equal" else {}
    # Detections are judged together: one of their outputs that changes is enough for all.
    varies = any(varying[i] for i in detected.values())
    found: list[list[Judgement]] = [[] for _ in facts]
    for k, values in zip(chosen, outputs, strict=True):
        for i, value in enumerate(values):
            one = _Comparison(expected, rule, k, i, varies=varies if i in detected.values() else varying[i])
            together = (values, detected) if i in detected.values() else None
            found[i].append(one.judgement(value, together))
    return [worst(judgements) for judgements in found]


def variation(references: Outputs) -> list[bool]:
    """Return for each output whether its reference is another for another input set, or there is one set."""
    by_output = zip(*references, strict=True)
    return [len(references) == 1 or len({value.tobytes() for value in values}) > 1 for values in by_output]


def worst(judgements: Sequence[Judgement]) -> Judgement:
    """Join judgements: fail if any fails, not judged if none is; the worst figure of each kind."""
    verdicts = [j.verdict for j in judgements]
    verdict: Verdict | None = "fail" if "fail" in verdicts else "pass" if "pass" in verdicts else None
    matchings = [j.matching for j in judgements if j.matching is not None]
    # A failure is explained by itself; what was not judged matters where nothing failed.
    notes = [j.note for j in judgements if j.note and (verdict != "fail" or j.verdict == "fail")]
    return Judgement(
        max_abs=_worst(max, (j.max_abs for j in judgements)),
        rel_l2=_worst(max, (j.rel_l2 for j in judgements)),
        cosine=_worst(min, (j.cosine for j in judgements)),
        verdict=verdict,
        rule=judgements[0].rule,
        note=notes[0] if verdict == "fail" else "; ".join(dict.fromkeys(notes)),
        mean_abs=_worst(max, (j.mean_abs for j in judgements)),
        top1=_worst(min, (j.top1 for j in judgements)),
        nonfinite=sum(j.nonfinite for j in judgements),
        peer_rel_l2=_worst(max, (j.peer_rel_l2 for j in judgements)),
        # Where something was judged, what was not has no part in the margin.
        margin=_worst(max, (j.margin for j in judgements if verdict is None or j.verdict is not None)),
        equal=_worst(min, (j.equal for j in judgements)),
        matching=reduce(add, matchings) if matchings else None,
    )


def _worst(pick: Callable[[list[float]], float], values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return pick(known) if known else None


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Output i of input set k against its reference."""

    expected: Expected
    rule: Rule
    k: int
    i: int
    varies: bool

    def judgement(
        self, y: Array, together: tuple[Sequence[Array], Mapping[Role, int]] | None = None
    ) -> Judgement:
        """Judge the output. `together`: all outputs, and the places of those that are detections with it."""
        fact, r = self.expected.facts[self.i], self.expected.references[self.k][self.i]
        where = f"output {fact.name!r} of input set {self.k}"
        if y.dtype != r.dtype or y.shape != r.shape:
            note = f"{where}: {y.dtype}{list(y.shape)}, the reference has {r.dtype}{list(r.shape)}"
            return Judgement(None, None, None, "fail", self.rule.text, note)
        real_r, real_y = _real(r, fact), _real(y, fact)
        known = np.isfinite(real_r)
        nonfinite = int(real_y.size - np.count_nonzero(np.isfinite(real_y)))
        # Equal infinities are alike, and so are two NaNs, which compare as different.
        wild = ~known & (real_r != real_y) & ~(np.isnan(real_r) & np.isnan(real_y))
        wild |= known & ~np.isfinite(real_y)
        if wild.any():
            note = f"{where}: {int(wild.sum())} values are NaN or Inf in other places than in the reference"
            return Judgement(None, None, None, "fail", self.rule.text, note, nonfinite=nonfinite)
        # What is not finite is alike, and counts no further.
        real_r, real_y = np.where(known, real_r, 0.0), np.where(known, real_y, 0.0)
        matches = None if together is None else self._matches(*together)
        excess = (
            self._excess(real_r, real_y) if matches is None else bounds.Excess(matches.ratio, matches.text)
        )
        passed = excess.ratio <= 1.0
        unjudged = self._proves_nothing(known) if passed else ""
        if matches is not None:
            if passed and not unjudged and not matches.is_judged:
                unjudged = (
                    f"its reference detects nothing above {matches.bound:g} in these inputs{_OTHER_INPUTS}"
                )
        else:
            unjudged = unjudged or self._amplified(real_r)
            if passed and not unjudged and self.rule.kind != "bit_equal":
                unjudged = self._mistakable(known, real_r, real_y)
        note = "" if passed else f"{where}: {excess.text}"
        if unjudged:
            note = f"output {fact.name!r} is not judged: {unjudged}"
        difference = np.abs(real_y - real_r)
        return Judgement(
            max_abs=float(difference.max(initial=0.0)),
            rel_l2=figures.relative_norm(difference, real_r),
            cosine=figures.cosine(real_r, real_y),
            verdict=None if unjudged else "pass" if passed else "fail",
            rule=self.rule.text,
            note=note,
            mean_abs=float(difference.mean()) if difference.size else 0.0,
            top1=figures.top1(real_r, real_y),
            nonfinite=nonfinite,
            peer_rel_l2=self._peer(known, real_r),
            margin=excess.ratio if math.isfinite(excess.ratio) else None,
            equal=float(np.mean(real_r == real_y)) if self._is_index() and r.size else None,
            # Told once for the four of them.
            matching=matches.matching
            if matches is not None and self.expected.kind(self.i).role == "boxes"
            else None,
        )

    def _matches(self, values: Sequence[Array], places: Mapping[Role, int]) -> Compared:
        """Compare the detections that all outputs are together with the reference's."""

        def read(outputs: Sequence[Array]) -> Detections:
            facts = self.expected.facts
            return Detections.of({role: _real(outputs[i], facts[i]) for role, i in places.items()})

        references = self.expected.references[self.k]
        runs = [self.expected.draws[name][self.k] for name in self.rule.draws]
        scores = _real(references[places["scores"]], self.expected.facts[places["scores"]])
        known = np.nan_to_num(scores)
        quantum = _quantum(known, self.expected.facts[places["scores"]])
        alike = [run for run in runs if all(run[i].shape == references[i].shape for i in places.values())]
        return compared(
            read(references),
            read(values),
            [read(run) for run in alike],
            quantum,
            lambda off: score_bound(self.rule, known, quantum, off),
        )

    def _excess(self, r: figures.Reals, y: figures.Reals) -> bounds.Excess:
        """Return by how much the output is off by the rule that it holds least."""
        if not r.size:
            return bounds.Excess(0.0, "")
        if self.rule.kind == "bit_equal":
            different = int(np.count_nonzero(r != y))
            text = f"{different} of {r.size} values differ, largest by {np.abs(y - r).max():g}"
            return bounds.Excess(math.inf if different else 0.0, text)
        if self.rule.kind == "cosine":
            return bounds.cosine_excess(y, r)
        floor = self.rule.floor(r, self._quantum(r))
        if self.rule.kind == "norm":
            error = figures.root_mean_square(y - r)
            ratio = error / floor.rms
            return bounds.Excess(ratio, f"root mean square of y-r: {error:.3g} > {floor.rms:.3g}")
        if self._is_index():
            runs = [self.expected.draws[name][self.k][self.i] for name in self.rule.draws]
            undecided = self._undecided(r)
            return bounds.index_excess(
                y[~undecided], r[~undecided], [run[~undecided] for run in runs if run.shape == r.shape]
            )
        draws = self.expected.drawn(self.i, self.rule.draws)
        found = bounds.excesses(figures.figures(y - r, r), draws, self.k, floor, self.rule.spread)
        return max(found, key=lambda one: one.ratio)

    def _is_index(self) -> bool:
        return self.expected.kind(self.i).kind == "index"

    def _undecided(self, r: figures.Reals) -> NDArray[np.bool_]:
        """Return the places of an index whose best candidates are nearer than an honest error of one is."""
        kind = self.expected.kind(self.i)
        if kind.candidates is None:
            return np.zeros(r.shape, np.bool_)
        fact = self.expected.facts[kind.candidates]
        values = _real(self.expected.references[self.k][kind.candidates], fact)
        worst = self.expected.drawn(kind.candidates, self.rule.draws).worst("largest", self.k)
        bound = score_bound(self.rule, values, _quantum(values, fact), worst)
        return bounds.near_ties(values, bound, kind).reshape(r.shape)

    def _quantum(self, r: figures.Reals) -> float:
        return _quantum(r, self.expected.facts[self.i])

    def _proves_nothing(self, known: NDArray[np.bool_]) -> str:
        """Return why agreement with this reference proves nothing; empty where it does."""
        if not known.any():
            return f"its reference has no finite value for these inputs{_OTHER_INPUTS}"
        return "" if self.varies else f"its reference is the same for every input set{_OTHER_INPUTS}"

    def _amplified(self, r: figures.Reals) -> str:
        """Return why honest runs are no yardstick here; empty where they are one, or none is needed."""
        if self.rule.kind not in ("floats", "quantised") or self._is_index():
            return ""
        # Of a few values, the deviation from their mean is as much a matter of chance as they are.
        deviation = (r.size >= figures.LEAST_OF_SLICE and float(r.std())) or figures.root_mean_square(r)
        apart = self.expected.drawn(self.i, self.rule.draws).worst("rms", self.k)
        if apart <= bounds.MOST_AMPLIFIED * deviation or apart <= self._quantum(r):
            return ""
        factor = self.expected.amplification(self.i, self.k)
        by = f" by {factor:.2g}" if factor else ""
        how = f"by {apart / deviation:.0%}" if deviation else "from a reference of zeros"
        return f"{AMPLIFIES}{by}: honest runs differ {how}{_OTHER_INPUTS}"

    def _mistakable(self, known: NDArray[np.bool_], r: figures.Reals, y: figures.Reals) -> str:
        """Return what an output within its bounds could be as well; empty where it is the right one alone."""
        fact = self.expected.facts[self.i]
        alike = [_real(x, fact) for x in self.expected.others(self.k, self.i) if x.shape == r.shape]
        finite = [np.where(known, x, 0.0) for x in alike if np.isfinite(x[known]).all()]
        decoy = nearest_decoy(y, r, finite)
        return "" if decoy is None else f"it is as near to {decoy} as to the reference"

    def _peer(self, known: NDArray[np.bool_], r: figures.Reals) -> float | None:
        """Return how far XNNPACK is from the reference; None where it has no output of this form."""
        x = self.expected.draws[PEER][self.k][self.i] if PEER in self.expected.draws else None
        if x is None or x.shape != r.shape:
            return None
        real_x = _real(x, self.expected.facts[self.i])[known]
        return figures.relative_norm(real_x - r[known], r) if np.isfinite(real_x).all() else None


def _quantum(r: figures.Reals, fact: OutputFacts) -> float:
    """Return the step of an output: its scale, or for a float a part of the reference's range."""
    return fact.scale or float(r.max(initial=0.0) - r.min(initial=0.0)) / FLOAT_QUANTA


def _real(values: Array, fact: OutputFacts) -> figures.Reals:
    """Return an output as float64 of its shape, dequantised where it is quantised."""
    real = np.asarray(values, np.float64)
    return real if fact.scale == 0.0 else fact.scale * (real - fact.zero_point)
