"""Compares an arm's answers to labelled data with the baseline's, sample by sample, and keeps them."""

import gzip
import hashlib
import shutil
from pathlib import Path

from agent.attempt.files import ANSWERS_FILE, KEPT_ANSWERS_FILE
from agent.wire.bounded import MAX_CHANGES
from agent.wire.labelled import ChangedAnswer, LabelledDrop, LabelledScore
from runtime.errors import DataError
from runtime.measure.accuracy.answers import answers_head, read_answers
from runtime.measure.accuracy.intervals import Verdict, judged_drop
from runtime.measure.accuracy.scores import difference


def with_answers(
    score: LabelledScore, folder: Path, base: tuple[str, Path] | None, max_drop: float | None
) -> LabelledScore:
    """Return the score of an arm's folder with its difference from the baseline's, if there is one (its name
    and folder), judged by the whole interval; and with the file for the store, which is written there.

    Without answers of the baseline there is no difference, and a drop that is allowed is not judged. Raises
    `DataError` for files that are not the answers to the same samples.
    """
    answers, target = folder / ANSWERS_FILE, folder / KEPT_ANSWERS_FILE
    # Without a time in its header, equal answers are one artifact.
    with target.open("w+b") as made:
        with gzip.GzipFile("", "wb", fileobj=made, mtime=0) as kept:
            try:
                with answers.open("rb") as file:
                    shutil.copyfileobj(file, kept)
            except OSError as error:
                raise DataError(f"the answers cannot be kept: {error}") from error
            if base is not None:
                name, theirs = base
                score = _with_drop(score, answers, name, theirs / ANSWERS_FILE, max_drop, kept)
        made.seek(0)
        digest = hashlib.file_digest(made, "sha256").hexdigest()
    return score.model_copy(update={"answers_sha256": digest})


def _with_drop(
    score: LabelledScore,
    answers: Path,
    baseline: str,
    theirs: Path,
    max_drop: float | None,
    kept: gzip.GzipFile,
) -> LabelledScore:
    if not theirs.exists():
        return _judged(score, None if max_drop is None else "inconclusive")
    try:
        found = difference(
            answers_head(answers),
            score.metric,
            read_answers(theirs),
            read_answers(answers),
            # The changes stand behind the answers in the same file.
            lambda change: kept.write(change.line()),
        )
    except (OSError, KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(f"the answers of {baseline} cannot be compared: {error}") from error
    changes = tuple(map(ChangedAnswer.like, found.changes[:MAX_CHANGES]))
    drop = LabelledDrop.like(
        found, baseline=baseline, ci95=found.interval, changes=changes, max_drop=max_drop
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
