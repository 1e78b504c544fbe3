"""Judges the outputs of an attempt: every set of the cold process, and those of the measured ones."""

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.attempt.files import AttemptFile, ProcessReport, outputs_path
from agent.processes.left_files import open_left
from agent.runner.judge.references import References
from agent.runner.tunings import cold, timed
from agent.wire.bounded import MAX_OUTPUTS
from agent.wire.measurement import Accuracy, MatchedDetections, OutputAccuracy
from runtime.delegates.base import Array
from runtime.delegates.cpu import CPU
from runtime.delegates.registry import delegate_descriptor
from runtime.judge.agreement import Expected, Judgement, OutputFacts, Outputs, judge, judge_each, worst
from runtime.judge.kinds import Kind, OutputKind
from runtime.judge.rules import Arithmetic, Rule, rule_for
from runtime.measure.outputs import load_outputs
from runtime.measure.reference import ReferenceKind

NONDETERMINISTIC = "nondeterministic: the same inputs gave different outputs"
"""The flag of a measured process whose outputs differ from those that were judged, bit by bit."""


@dataclass(frozen=True, slots=True)
class ModelKind:
    """The facts about the model by which the rule is chosen."""

    arithmetic: Arithmetic
    keeps_state: bool
    outputs: tuple[OutputKind, ...] = ()


class OutputsError(Exception):
    """A process left no outputs, or what cannot be read."""


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
    """Judge every output; the verdict is null with the reason where there is nothing to compare with. Raises
    `OutputsError`.

    Those of the first cold process give the figures of each output; all tunings count for the verdict.
    `references` and `kind` are texts where there are none. The outputs of a model that keeps state depend on
    how often it ran before: of the timed processes only the first invoke can then be compared, and the cold
    ones are judged again after as many steps as the reference was.
    """
    if isinstance(references, str):
        return JudgedOutputs(unjudged(None, references))
    reference = references.reference
    if _is_of_other_inputs(references, reports[0]):
        note = "the reference was made for other inputs than this process had; compare the versions of numpy"
        return JudgedOutputs(unjudged(reference.label, note))
    if reference.kind is ReferenceKind.CPU and attempt.job.delegate_kind == CPU:
        note = "cpu is its own reference here; install ai-edge-litert to judge it"
        return JudgedOutputs(unjudged(reference.label, note))
    if isinstance(kind, str):
        return JudgedOutputs(unjudged(reference.label, kind))
    rule = _rule(attempt, reports[0], references, kind)
    facts = [OutputFacts(f.name, f.scale, f.zero_point) for f in reports[0].output_facts]
    # A peer that has other outputs than the file fails by their number.
    kinds = kind.outputs if len(kind.outputs) == len(facts) else ()
    count = attempt.job.plan.input_sets
    # The second part is there for a model that keeps state: its sets once more, many steps later.
    parts = (slice(count), slice(count, None))
    first, again = (_expected(references, facts, kinds, part) for part in parts)
    sets = 2 * count if again.references else count
    fresh = [_outputs(folder, s.index, len(facts), sets) for r in cold(reports) if (s := r.samples)]
    each, *others = (judge_each(first, outputs[:count], rule) for outputs in fresh)
    if again.references:
        others += [judge_each(again, outputs[count:], rule) for outputs in fresh]
    measured = [_Measured.read(report, folder, keeps_state=kind.keeps_state) for report in timed(reports)]
    later = [judgement for process in measured for judgement in process.judged(first, rule)]
    overall = worst([*each, *(judgement for other in others for judgement in other), *later])
    outputs = tuple(
        _figures(fact, judgement, first.kind(i).kind)
        for i, (fact, judgement) in enumerate(zip(facts, each, strict=False))
    )
    warnings = tuple(
        f"process {process.index + 1}: {NONDETERMINISTIC}"
        for process in measured
        # `fresh` has the cold processes in the order of their tunings.
        if not process.repeats(fresh[process.tuning])
    )
    accuracy = Accuracy.like(overall, reference=reference.label, outputs=outputs[:MAX_OUTPUTS])
    return JudgedOutputs(accuracy, warnings)


def _expected(
    references: References, facts: Sequence[OutputFacts], kinds: Sequence[OutputKind], part: slice
) -> Expected:
    """Return the reference for a part of the steps: those of a model just opened, or the later ones."""
    draws: dict[str, Outputs] = {kind.value: draw.outputs[part] for kind, draw in references.draws.items()}
    return Expected(references.reference.outputs[part], facts, draws, kinds)


def unjudged(reference: str | None, note: str) -> Accuracy:
    """No verdict, with the reason."""
    return Accuracy(reference=reference, max_abs=None, rel_l2=None, cosine=None, verdict=None, note=note)


def _is_of_other_inputs(references: References, report: ProcessReport) -> bool:
    """Whether a reference names another pool of inputs than the process does."""
    fed = "" if report.samples is None else report.samples.facts.get("pool_sha256", "")
    made = [references.reference, *references.draws.values()]
    # Empty, on either side: not known.
    return any(fed and reference.pool_sha256 not in ("", fed) for reference in made)


def _rule(attempt: AttemptFile, report: ProcessReport, references: References, kind: ModelKind) -> Rule:
    descriptor = delegate_descriptor(attempt.job.delegate_kind)
    return rule_for(
        kind.arithmetic,
        integer_path=descriptor.integer_path or report.settings.get("integer_path") == "yes",
        precision=report.settings.get("precision", "fp32"),
        exact_reference=references.reference.kind is ReferenceKind.REFERENCE_KERNELS,
        draws=[kind.value for kind in references.draws],
    )


@dataclass(frozen=True, slots=True)
class _Measured:
    """The comparable outputs of a measured process, with the numbers of their input sets."""

    index: int
    tuning: int
    sets: tuple[tuple[int, tuple[Array, ...]], ...]

    @classmethod
    def read(cls, report: ProcessReport, folder: Path, *, keeps_state: bool) -> "_Measured":
        """Read its first outputs and, where they depend on their inputs alone, the last timed ones.

        The timed ones show a delegate that answers from memory once it is timed.
        """
        assert report.samples is not None
        index = report.samples.index
        # A timed process leaves two: those of its first invoke, and of its last timed one.
        first, last = _outputs(folder, index, len(report.output_facts), 2)[:2]
        sets = ((0, first),) if keeps_state else ((0, first), (report.last_set, last))
        return cls(index, report.samples.tuning, sets)

    def repeats(self, fresh: Sequence[Sequence[Array]]) -> bool:
        """Whether it returned, bit by bit, what the process returned that began its tuning."""
        return all(_same(fresh[k], outputs) for k, outputs in self.sets if k < len(fresh))

    def judged(self, expected: Expected, rule: Rule) -> list[Judgement]:
        """Judge each by its own input set."""
        return [judge(expected, [outputs], rule, sets=[k]) for k, outputs in self.sets]


def _figures(fact: OutputFacts, judgement: Judgement, kind: Kind) -> OutputAccuracy:
    matching = judgement.matching
    detections = None if matching is None else MatchedDetections.like(matching)
    return OutputAccuracy.like(judgement, name=fact.name, kind=kind, detections=detections)


def _same(a: Sequence[Array], b: Sequence[Array]) -> bool:
    return len(a) == len(b) and all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


def _outputs(folder: Path, index: int, count: int, sets: int) -> tuple[tuple[Array, ...], ...]:
    """Return the outputs of a process, of so many input sets at least. Raises `OutputsError`: the process may
    have left anything under that name.
    """
    try:
        with open_left(outputs_path(folder, index)) as file:
            found = load_outputs(file, count)
    # Whatever numpy and zipfile raise for bytes that anybody may have written.
    except (OSError, ValueError, LookupError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise OutputsError(f"the outputs of process {index} cannot be read: {error}") from error
    if len(found) < sets:
        raise OutputsError(f"process {index} left outputs of {len(found)} input sets, not of {sets}")
    return found
