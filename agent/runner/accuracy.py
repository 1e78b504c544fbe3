"""Judges the outputs of an attempt: every set of the cold process, and what the measured ones returned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from agent.attempt.files import AttemptFile, ProcessReport, outputs_path
from agent.runner.measure import COLD
from agent.runner.references import References
from agent.wire.bounded import MAX_OUTPUTS
from agent.wire.messages import Accuracy, OutputAccuracy
from runtime.delegates.base import Array
from runtime.delegates.cpu import CPU
from runtime.delegates.registry import delegate_descriptor
from runtime.tools.agreement import (
    Expected,
    Judgement,
    OutputFacts,
    Rule,
    judge,
    judge_each,
    rule_for,
    variation,
    worst,
)
from runtime.tools.arithmetic import Arithmetic
from runtime.tools.outputs import load_outputs
from runtime.tools.reference import ReferenceKind

NONDETERMINISTIC = "nondeterministic: the same inputs gave different outputs"
"""The flag of a measured process whose outputs differ from those that were judged, bit by bit."""


@dataclass(frozen=True, slots=True)
class ModelKind:
    """What the choice of the rule needs to know of the model."""

    arithmetic: Arithmetic
    keeps_state: bool


@dataclass(frozen=True, slots=True)
class JudgedOutputs:
    """The verdict over all processes, and the warnings that the comparison of their outputs gives."""

    accuracy: Accuracy
    warnings: tuple[str, ...] = ()


def judged_outputs(
    attempt: AttemptFile,
    reports: Sequence[ProcessReport],
    folder: Path,
    references: References | str,
    kind: ModelKind | str,
) -> JudgedOutputs:
    """Judge every output; the verdict is null with the reason where there is nothing to compare with.

    `reports` starts with the cold process's. `references` and `kind` are texts where there are none. The
    outputs of a model that keeps state depend on how often it ran before: of the timed processes only the
    first invoke can then be compared.
    """
    if isinstance(references, str):
        return JudgedOutputs(unjudged(None, references))
    reference = references.reference
    if reference.kind is ReferenceKind.CPU and attempt.job.delegate_kind == CPU:
        note = "cpu is its own reference here; install ai-edge-litert to judge it"
        return JudgedOutputs(unjudged(reference.label, note))
    if isinstance(kind, str):
        return JudgedOutputs(unjudged(reference.label, kind))
    rule = _rule(attempt, reports[0], references, kind)
    facts = [OutputFacts(f.name, f.scale, f.zero_point) for f in reports[0].output_facts]
    peers = None if references.peer is None else references.peer.outputs
    expected = Expected(reference.outputs, facts, peers)
    fresh = load_outputs(outputs_path(folder, COLD), len(facts))
    each = judge_each(expected, fresh, rule)
    measured = [_Measured.read(report, folder, keeps_state=kind.keeps_state) for report in reports[1:]]
    timed = [judgement for process in measured for judgement in process.judged(expected, rule)]
    overall = asdict(worst([*each, *timed]))
    outputs = tuple(_figures(fact, judgement) for fact, judgement in zip(facts, each, strict=False))
    warnings = tuple(
        f"process {process.index + 1}: {NONDETERMINISTIC}"
        for process in measured
        if any(not _same(fresh[k], outputs) for k, outputs in process.sets if k < len(fresh))
    )
    accuracy = Accuracy(reference=reference.label, outputs=outputs[:MAX_OUTPUTS], **overall)
    return JudgedOutputs(accuracy, warnings)


def unjudged(reference: str | None, note: str) -> Accuracy:
    """No verdict, with the reason."""
    return Accuracy(reference=reference, max_abs=None, rel_l2=None, cosine=None, verdict=None, note=note)


def _rule(attempt: AttemptFile, report: ProcessReport, references: References, kind: ModelKind) -> Rule:
    descriptor = delegate_descriptor(attempt.job.delegate_kind)
    return rule_for(
        kind.arithmetic,
        integer_path=descriptor.integer_path or report.settings.get("integer_path") == "yes",
        precision=report.settings.get("precision", "fp32"),
        exact_reference=references.reference.kind is ReferenceKind.REFERENCE_KERNELS,
        has_peer=references.peer is not None,
    )


@dataclass(frozen=True, slots=True)
class _Measured:
    """What a measured process returned that can be compared: the number of the input set, and its outputs."""

    index: int
    sets: tuple[tuple[int, tuple[Array, ...]], ...]

    @classmethod
    def read(cls, report: ProcessReport, folder: Path, *, keeps_state: bool) -> _Measured:
        """Read its first outputs and, where they depend on their inputs alone, the last timed ones.

        The timed ones show a delegate that answers from memory once it is timed.
        """
        assert report.samples is not None
        index = report.samples.index
        first, last = load_outputs(outputs_path(folder, index), len(report.output_facts))
        return cls(index, ((0, first),) if keeps_state else ((0, first), (report.last_set, last)))

    def judged(self, expected: Expected, rule: Rule) -> list[Judgement]:
        """Judge each by its own input set."""
        varies = variation(expected.references)
        return [judge(expected.only(k), [outputs], rule, varies=varies) for k, outputs in self.sets]


def _figures(fact: OutputFacts, judgement: Judgement) -> OutputAccuracy:
    return OutputAccuracy(
        name=fact.name,
        max_abs=judgement.max_abs,
        mean_abs=judgement.mean_abs,
        rel_l2=judgement.rel_l2,
        cosine=judgement.cosine,
        top1=judgement.top1,
        nonfinite=judgement.nonfinite,
        verdict=judgement.verdict,
    )


def _same(a: Sequence[Array], b: Sequence[Array]) -> bool:
    """Return whether the outputs are equal bit by bit."""
    return len(a) == len(b) and all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))
