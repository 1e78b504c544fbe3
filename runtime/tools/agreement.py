"""The rule by which a result agrees with its reference, with all tolerances (described in docs/measuring.md).

r = reference output, y = output, x = LiteRT XNNPACK's output, n = elements, q = an output's quantum; each
output of each input set on its own:

* float models: ||y - r|| <= tol * ||r|| + 1e-6 * sqrt(n), tol = 1e-4 in fp32, 2e-2 in fp16 and bf16; up to
  ten times as much where that is within 1.5 * ||x - r||: the network amplifies rounding
* pure integer models on `cpu` or on a delegate's integer path, against the reference kernels: bit-equal
* every other pairing with quantised activations or hybrid weights: ||y - r|| <= 1.5 * ||x - r|| + q *
  sqrt(n); where there is no x: centred cosine >= 0.98 and ||y - r|| <= 0.2 * ||r||
* always: values that are not finite match in place and kind, and so do shape and dtype
* an output whose reference has no finite value, or is the same for every input set, can fail and cannot pass;
  no more can one that lies as near to a wrong output (`decoys.py`) as to its reference
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from runtime.delegates.base import Array
from runtime.tools.arithmetic import Arithmetic
from runtime.tools.decoys import nearest_decoy

FP32_TOLERANCE = 1e-4
"""Largest ||y - r|| / ||r|| of a float model in fp32. Chosen: over a thousand roundings of 6e-8, so that
another order of summation passes in a deep network; a wrong kernel is off by far more."""

REDUCED_TOLERANCE = 2e-2
"""The same in fp16 and bf16, whose roundings of 5e-4 and 4e-3 are thousands of times as coarse; not scaled by
them, as a result must stay useful."""

ABSOLUTE_FLOOR = 1e-6
"""Difference allowed per element beside the relative bound (times sqrt(n) in the norm): outputs almost zero
have no meaningful relative error."""

PEER_FACTOR = 1.5
"""How much farther than XNNPACK an output may be from the reference kernels. Chosen: two correct ways to
requantise differ from a third by about the same; larger, and a wrong kernel could hide behind a peer that is
itself far off."""

MOST_AMPLIFIED = 10.0
"""By how much more than the tolerance a float output may be off where XNNPACK is: networks amplify the
rounding of an order of summation. Chosen: of the models tried, XNNPACK exceeds the tolerance of fp32 on one,
by a tenth. Without a bound, a peer that is wrong would excuse everything."""

FLOAT_QUANTA = 255
"""Steps into which the range of a float output of a quantised or hybrid model is divided: its quantum is one
of them, as if the output were 8 bits wide."""

MIN_CENTRED_COSINE = 0.98
"""Smallest cosine of dequantised outputs, each less its mean, where no peer can run the model. Without the
mean, as a constant is nearly parallel to every flat output."""

MAX_RELATIVE = 0.2
"""Largest ||y - r|| / ||r|| beside that cosine, which does not notice another scale."""

REDUCED = ("fp16", "bf16")
"""Precisions whose rounding is coarser than fp32's."""

Verdict = Literal["pass", "fail"]


@dataclass(frozen=True, slots=True)
class Rule:
    """How outputs are compared. `tolerance` is tol, the factor to a peer, the smallest cosine, or 0."""

    kind: Literal["norm", "peer", "cosine", "bit_equal"]
    tolerance: float
    text: str


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """Name and affine quantisation of one output; scale 0 means it is not quantised."""

    name: str
    scale: float = 0.0
    zero_point: int = 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """The worst figures over outputs and sets, and the verdict. None: not defined, or not judged (see note).

    `mean_abs` is the mean of |y - r|, `nonfinite` counts the values of y that are NaN or Inf, `top1` is the
    share of rows (the last axis) whose largest value is at the same place, `peer_rel_l2` is the relative
    distance of XNNPACK from the same reference.
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


Outputs = Sequence[Sequence[Array]]
"""Output i of input set k at [k][i]."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What outputs are judged by: the reference's, and XNNPACK's where it runs the model.

    `left_out`: the references of input sets that are not judged, from which outputs must be told as well.
    """

    references: Outputs
    facts: Sequence[OutputFacts]
    peers: Outputs | None = None
    left_out: Outputs = ()

    def only(self, k: int) -> Expected:
        """The same of input set `k` alone."""
        peers = None if self.peers is None else [self.peers[k]]
        return Expected([self.references[k]], self.facts, peers, self._others(k))

    def others(self, k: int, i: int) -> list[Array]:
        """Output i's references of every input set but `k`."""
        return [values[i] for values in self._others(k)]

    def _others(self, k: int) -> list[Sequence[Array]]:
        return [*self.references[:k], *self.references[k + 1 :], *self.left_out]


def rule_for(
    arithmetic: Arithmetic,
    *,
    integer_path: bool,
    precision: str,
    exact_reference: bool = True,
    has_peer: bool = False,
) -> Rule:
    """Return the rule for one pairing of a model and a delegate.

    `integer_path`: the delegate computes integer models in integers (`cpu` does). `precision`: "fp32",
    "fp16" or "bf16". `exact_reference`: the reference was made by reference kernels, not by another fast
    path. `has_peer`: XNNPACK's outputs are there too.
    """
    if arithmetic is Arithmetic.FLOAT:
        tolerance = REDUCED_TOLERANCE if precision in REDUCED else FP32_TOLERANCE
        return Rule(
            "norm", tolerance, f"|y-r| <= {tolerance:g}*|r| + {ABSOLUTE_FLOOR:g}*sqrt(n) ({precision})"
        )
    if arithmetic is Arithmetic.INTEGER and integer_path and exact_reference:
        return Rule("bit_equal", 0.0, "bit-equal to the reference kernels (pure integer model)")
    if has_peer and exact_reference:
        return Rule(
            "peer", PEER_FACTOR, f"|y-r| <= {PEER_FACTOR:g}*|xnnpack-r| + q*sqrt(n) (quantised or hybrid)"
        )
    return Rule(
        "cosine",
        MIN_CENTRED_COSINE,
        f"centred cosine >= {MIN_CENTRED_COSINE:g} and |y-r| <= {MAX_RELATIVE:g}*|r| (quantised or hybrid)",
    )


def judge(
    expected: Expected, outputs: Outputs, rule: Rule, *, varies: Sequence[bool] | None = None
) -> Judgement:
    """Compare output sets with what is expected of them; see `judge_each`."""
    return worst(judge_each(expected, outputs, rule, varies=varies))


def judge_each(
    expected: Expected, outputs: Outputs, rule: Rule, *, varies: Sequence[bool] | None = None
) -> list[Judgement]:
    """Return one judgement for each output of the model, over all sets; a single one where the count differs.

    `varies` tells for each output whether its reference differs between input sets; taken from `expected`
    where it is None. The note of a failure is that of the first set that fails; that of an output which is
    not judged says why.
    """
    references, facts = expected.references, expected.facts
    if len(outputs) != len(references) or any(len(y) != len(facts) for y in (*outputs, *references)):
        return [Judgement(None, None, None, "fail", rule.text, "the number of outputs differs")]
    if not facts:
        return [Judgement(None, None, None, None, rule.text, "the model has no outputs")]
    varying = variation(references) if varies is None else varies
    return [
        worst([_compared(expected, outputs, rule, (k, i), varies=varying[i]) for k in range(len(references))])
        for i in range(len(facts))
    ]


def variation(references: Outputs) -> list[bool]:
    """Return for each output whether its reference is another for another input set, or there is one set."""
    by_output = zip(*references, strict=True)
    return [len(references) == 1 or len({value.tobytes() for value in values}) > 1 for values in by_output]


def worst(judgements: Sequence[Judgement]) -> Judgement:
    """Join judgements: fail if any fails, not judged if none is; the worst figure of each kind."""
    verdicts = [j.verdict for j in judgements]
    verdict: Verdict | None = "fail" if "fail" in verdicts else "pass" if "pass" in verdicts else None
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
    )


def _worst(pick: Any, values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return pick(known) if known else None


def _compared(
    expected: Expected, outputs: Outputs, rule: Rule, place: tuple[int, int], *, varies: bool
) -> Judgement:
    """Judge output i of input set k, with `place` = (k, i)."""
    k, i = place
    fact, r, y = expected.facts[i], expected.references[k][i], outputs[k][i]
    where = f"output {fact.name!r} of input set {k}"
    if y.dtype != r.dtype or y.shape != r.shape:
        note = f"{where}: {y.dtype}{list(y.shape)}, the reference has {r.dtype}{list(r.shape)}"
        return Judgement(None, None, None, "fail", rule.text, note)
    real_r, real_y = _real(r, fact), _real(y, fact)
    comparable = np.isfinite(real_r)
    nonfinite = int(real_y.size - np.count_nonzero(np.isfinite(real_y)))
    wild = ~comparable & (real_r != real_y) & ~(np.isnan(real_r) & np.isnan(real_y))
    wild |= comparable & ~np.isfinite(real_y)
    if wild.any():
        note = f"{where}: {int(wild.sum())} values are NaN or Inf in other places than in the reference"
        return Judgement(None, None, None, "fail", rule.text, note, nonfinite=nonfinite)
    figures = _figures(real_r[comparable], real_y[comparable])
    peer = None if expected.peers is None else _error(real_r, expected.peers[k][i], fact, comparable)
    passed, note = _decide(rule, figures, r, y, peer, _quantum(fact, real_r[comparable]))
    unjudged = _unjudged(figures, varies=varies)
    if passed and not unjudged and rule.kind != "bit_equal":
        unjudged = _mistakable(real_r, real_y, expected.others(k, i), fact, r.shape)
    if not passed:
        note = f"{where}: {note}"
    else:
        note = f"output {fact.name!r} is not judged: {unjudged}" if unjudged else ""
    return Judgement(
        max_abs=figures.max_abs,
        rel_l2=figures.rel_l2,
        cosine=figures.cosine,
        verdict="fail" if not passed else None if unjudged else "pass",
        rule=rule.text,
        note=note,
        mean_abs=figures.mean_abs,
        top1=_top1(real_r.reshape(r.shape), real_y.reshape(r.shape)),
        nonfinite=nonfinite,
        peer_rel_l2=None if peer is None or figures.norm == 0.0 else peer / figures.norm,
    )


def _unjudged(figures: _Figures, *, varies: bool) -> str:
    """Return why agreement with this reference proves nothing; empty where it does."""
    if figures.count == 0:
        return "its reference has no finite value"
    return "" if varies else "its reference is the same for every input set"


@dataclass(frozen=True, slots=True)
class _Figures:
    count: int
    max_abs: float
    mean_abs: float
    error: float
    norm: float
    cosine: float
    centred_cosine: float

    @property
    def rel_l2(self) -> float | None:
        """The relative error ||y - r|| / ||r||; 0 where both are zero, None where only r is."""
        if self.norm > 0.0:
            return self.error / self.norm
        return 0.0 if self.error == 0.0 else None


def _figures(r: Array, y: Array) -> _Figures:
    """Return the error measures of two flat float64 arrays."""
    difference = np.abs(y - r)
    return _Figures(
        count=r.size,
        max_abs=float(difference.max(initial=0.0)),
        mean_abs=float(difference.mean()) if r.size else 0.0,
        error=float(np.linalg.norm(difference)),
        norm=float(np.linalg.norm(r)),
        cosine=_cosine(r, y),
        centred_cosine=_cosine(r - r.mean(), y - y.mean()) if r.size else 1.0,
    )


def _cosine(r: Array, y: Array) -> float:
    norm_r, norm_y = float(np.linalg.norm(r)), float(np.linalg.norm(y))
    if norm_r > 0.0 and norm_y > 0.0:
        # Divided first: the product of two large norms could overflow. Rounding may give a little over 1.
        return min(1.0, float(np.dot(r / norm_r, y / norm_y)))
    return 1.0 if norm_r == norm_y else 0.0


def _error(real_r: Array, x: Array, fact: OutputFacts, comparable: Array) -> float | None:
    """Return ||x - r|| of a peer; None where the peer's output has another form or is not finite."""
    if x.size != real_r.size:
        return None
    error = float(np.linalg.norm(_real(x, fact)[comparable] - real_r[comparable]))
    return error if math.isfinite(error) else None


def _quantum(fact: OutputFacts, r: Array) -> float:
    """Return the step of an output: its scale, or for a float a part of the reference's range."""
    if fact.scale:
        return fact.scale
    return float(r.max() - r.min()) / FLOAT_QUANTA if r.size else 0.0


def _mistakable(
    real_r: Array, real_y: Array, others: Sequence[Array], fact: OutputFacts, shape: tuple[int, ...]
) -> str:
    """Return what an output within its bound could be as well; empty where it is the reference's alone."""
    known = np.isfinite(real_r)

    def comparable(values: Array) -> Array:
        return np.where(known, values, 0.0).reshape(shape)

    alike = [_real(other, fact) for other in others if other.shape == shape]
    finite = [comparable(other) for other in alike if np.isfinite(other[known]).all()]
    decoy = nearest_decoy(comparable(real_y), comparable(real_r), finite)
    return "" if decoy is None else f"it is as near to {decoy} as to the reference"


def _decide(
    rule: Rule, figures: _Figures, r: Array, y: Array, peer: float | None, quantum: float
) -> tuple[bool, str]:
    if rule.kind == "bit_equal":
        same = (r == y) | ((r != r) & (y != y))  # NaN equals NaN here
        different = int(r.size - np.count_nonzero(same))
        return different == 0, f"{different} of {r.size} values differ, largest by {figures.max_abs:g}"
    if rule.kind == "peer" and peer is not None:
        bound = rule.tolerance * peer + quantum * math.sqrt(figures.count)
        return figures.error <= bound, f"|y-r| = {figures.error:.3g} > {bound:.3g} (XNNPACK: {peer:.3g})"
    if rule.kind in ("peer", "cosine"):
        relative = figures.rel_l2 if figures.rel_l2 is not None else math.inf
        passed = figures.centred_cosine >= MIN_CENTRED_COSINE and relative <= MAX_RELATIVE
        return passed, f"centred cosine {figures.centred_cosine:.6f}, |y-r|/|r| = {relative:.3g}"
    bound = rule.tolerance * figures.norm + ABSOLUTE_FLOOR * math.sqrt(figures.count)
    if peer is not None:
        bound = max(bound, min(PEER_FACTOR * peer, MOST_AMPLIFIED * bound))
    return figures.error <= bound, f"|y-r| = {figures.error:.3g} > {bound:.3g}"


def _top1(r: Array, y: Array) -> float | None:
    """Return the share of rows whose largest value is at the same place; None for rows of one value."""
    if r.ndim == 0 or r.shape[-1] < 2 or not r.size:
        return None
    return float(np.mean(np.argmax(r, axis=-1) == np.argmax(y, axis=-1)))


def _real(values: Array, fact: OutputFacts) -> Array:
    """Return an output as flat float64, dequantised where it is quantised."""
    flat = values.reshape(-1).astype(np.float64)
    return flat if fact.scale == 0.0 else fact.scale * (flat - fact.zero_point)
