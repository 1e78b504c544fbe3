"""Variants of a network, each a file and a setting, and what a data set says of each and of their pairs."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runtime.common.statistics import on_front
from runtime.errors import FarmRuntimeError
from runtime.measure.accuracy.answers import read_answers
from runtime.measure.accuracy.data import Data
from runtime.measure.accuracy.intervals import Verdict, judged_drop
from runtime.measure.accuracy.scores import Difference, Score, difference, scores
from runtime.model.signatures import readable_model
from runtime.tools.model_diff.running import Setting
from runtime.tools.model_eval.process import Passed, run_pass

Progress = Callable[[str, int, int], None]
"""Is told a variant's name, its answers so far and the number of samples."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A file under a setting; `name` stands for it in texts and in the name of its answers."""

    name: str
    file: Path
    setting: Setting


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of one variant: its pass and scores, or the reason why it has none.

    `against`: its difference from the first variant, whose changed answers are all in the file `changes`, and
    the verdict on the drop that is allowed, if one is.
    """

    variant: Variant
    size_bytes: int
    passed: Passed | None = None
    scores: tuple[Score, ...] = ()
    why_not: str = ""
    against: Difference | None = None
    changes: Path | None = None
    verdict: Verdict | None = None

    @property
    def score(self) -> Score | None:
        """Return the chief score."""
        return self.scores[0] if self.scores else None


def variants_of(files: Sequence[Path], settings: Sequence[tuple[str, Setting]]) -> tuple[Variant, ...]:
    """Return every file under every setting, named by file and folder only where these differ."""
    made = []
    differ = len({file.stem for file in files}) == len(files)
    for file in files:
        own = file.stem if differ else str(file.with_suffix(""))
        for text, setting in settings:
            name = text if len(files) == 1 else own if len(settings) == 1 else f"{own} {text}"
            made.append(Variant(name, file, setting))
    return tuple(made)


def evaluate_all(
    variants: Sequence[Variant],
    data: Data,
    folder: Path,
    max_drop: float | None,
    told: Progress,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> tuple[Found, ...]:
    """Evaluate each variant, with `shapes` of inputs; a failure stands with its reason. Raises `OSError`."""
    found: list[Found] = []
    for variant in variants:
        first = found[0] if found and found[0].passed is not None else None
        try:
            one = _evaluated(variant, data, folder, told, shapes or {})
            found.append(one if first is None else _compared(first, one, max_drop))
        except FarmRuntimeError as error:
            found.append(Found(variant, variant.file.stat().st_size, why_not=str(error)))
    return tuple(found)


def _evaluated(
    variant: Variant, data: Data, folder: Path, told: Progress, shapes: Mapping[str, Sequence[int]]
) -> Found:
    with readable_model(variant.file) as (path, _):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        setting = variant.setting
        identity = {
            "model": digest,
            "delegate": setting.kind,
            # As texts, which compare equal after a round trip through JSON whatever type an option has.
            "options": {name: str(value) for name, value in sorted(setting.options.items())},
            # Answers of other data are not gone on with: size and time of change stand for the content.
            "data": [_version(path) for path in (data.path, data.truth, data.labels)],
            "mean": data.mean,
            "std": data.std,
            **({"shapes": dict(shapes)} if shapes else {}),
        }
        name = "".join(c if c.isalnum() or c in "-_.=" else "_" for c in variant.name)
        answers = folder / f"{name}.jsonl"
        passed = run_pass(
            setting,
            path,
            data,
            answers,
            identity,
            lambda done, count: told(variant.name, done, count),
            shapes,
        )
    made = scores(passed.head, read_answers(answers))
    chief = next((one for one in made if one.metric == data.metric), made[0])
    ordered = (chief, *(one for one in made if one is not chief))
    return Found(variant, variant.file.stat().st_size, passed, ordered)


def _version(path: Path | None) -> list[str | int] | None:
    """Return what changes with a file or a folder."""
    if path is None:
        return None
    state = path.stat()
    return [str(path.resolve()), state.st_size, state.st_mtime_ns]


def _compared(first: Found, second: Found, max_drop: float | None) -> Found:
    assert first.passed is not None
    assert second.passed is not None
    changes = second.passed.answers.with_suffix(".changes.jsonl")
    with changes.open("wb") as file:
        made = difference(
            second.passed.head,
            second.scores[0].metric,
            read_answers(first.passed.answers),
            read_answers(second.passed.answers),
            lambda change: file.write(change.line()),
        )
    verdict = None
    # Without an interval nothing is known of the scatter, and a drop can be neither passed nor failed.
    if max_drop is not None and made.interval is not None:
        verdict = judged_drop(made.interval, max_drop, higher_is_better=made.higher_is_better)
    return replace(second, against=made, changes=changes, verdict=verdict)


def front(found: Sequence[Found]) -> tuple[Found, ...]:
    """Return Pareto's front: variants that no other beats in accuracy, time, size and memory at once.

    A variant without a figure, as of one whose answers were there already, is compared by the others.
    """
    scored = [one for one in found if one.score is not None]
    kept = on_front([_costs(one) for one in scored])
    return tuple(one for one, is_kept in zip(scored, kept, strict=True) if is_kept)


def _costs(found: Found) -> tuple[float | None, ...]:
    score, passed = found.score, found.passed
    assert score is not None
    assert passed is not None
    # All of the front's figures are costs: less is better.
    sign = -1.0 if passed.head.get("higher_is_better", True) else 1.0
    memory = None if passed.memory_bytes is None else float(passed.memory_bytes)
    return sign * score.value, passed.median_us, float(found.size_bytes), memory
