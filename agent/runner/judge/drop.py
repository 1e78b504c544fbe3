"""Compares an arm's answers to labelled data with the baseline's, sample by sample."""

from __future__ import annotations

from pathlib import Path

from agent.wire.bounded import MAX_CHANGES
from agent.wire.labelled import ChangedAnswer, LabelledDrop, LabelledScore
from runtime.errors import FarmRuntimeError
from runtime.measure.accuracy.answers import answers_head, read_answers
from runtime.measure.accuracy.intervals import Verdict, judged_drop
from runtime.measure.accuracy.scores import difference


def with_drop(
    score: LabelledScore, answers: Path, baseline: str, theirs: Path, max_drop: float | None
) -> LabelledScore:
    """Return the score with its difference from the baseline's, judged by the whole interval.

    Without answers of the baseline there is none, and a drop that is allowed is not judged. Raises
    `FarmRuntimeError` for files that are not the answers to the same samples.
    """
    if not theirs.exists():
        return _judged(score, None if max_drop is None else "inconclusive")
    try:
        found = difference(answers_head(answers), score.metric, read_answers(theirs), read_answers(answers))
    except (OSError, KeyError, TypeError, ValueError, IndexError) as error:
        raise FarmRuntimeError(
            f"labelled data: the answers of {baseline} cannot be compared: {error}"
        ) from error
    changes = [
        ChangedAnswer(file=c.file, before=c.before, after=c.after) for c in found.changes[:MAX_CHANGES]
    ]
    drop = LabelledDrop(
        baseline=baseline,
        value=found.value,
        ci95=found.interval,
        gained=found.gained,
        lost=found.lost,
        changed=found.changed,
        changes=tuple(changes),
        max_drop=max_drop,
    )
    verdict: Verdict | None = None
    if max_drop is not None and found.interval is not None:
        verdict = judged_drop(found.interval, max_drop, higher_is_better=found.higher_is_better)
    return _judged(score.model_copy(update={"drop": drop}), verdict)


def _judged(score: LabelledScore, verdict: Verdict | None) -> LabelledScore:
    """Return the score with the worse of its own verdict and another one."""
    known = [one for one in (score.verdict, verdict) if one is not None]
    worst = next((one for one in ("fail", "inconclusive", "pass") if one in known), None)
    return score.model_copy(update={"verdict": worst})
