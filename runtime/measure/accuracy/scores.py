"""Scores of answers, and the differences of two settings on the same samples."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from runtime.errors import DataError
from runtime.measure.accuracy.answers import Answer
from runtime.measure.accuracy.average_precision import OVERLAPS, Curves, Reals
from runtime.measure.accuracy.intervals import Interval, Mean, paired_share_interval, share_interval

MEAN_AP: Final = "mAP"

_DRAWS: Final = 200
"""Samples of the pictures for an interval of mAP. Chosen: its ends are then known to a tenth of its width,
and 5,000 pictures take seconds."""

_SHOWN: Final = 100
"""Changed answers that a difference holds. Chosen: more than anyone reads; `listed` is told all."""


@dataclass(frozen=True, slots=True)
class Score:
    """A figure over all samples. `right`: the samples that are right, where each is right or wrong."""

    metric: str
    value: float
    interval: Interval | None
    samples: int
    right: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A sample to which two settings give different answers, as each puts it."""

    file: str
    before: str
    after: str

    def line(self) -> bytes:
        """Return it as a line of JSON."""
        return json.dumps({"changed": self.file, "before": self.before, "after": self.after}).encode() + b"\n"


Listed = Callable[[Change], object]
"""Is told each changed answer."""


@dataclass(slots=True)
class Difference:
    """The difference of a figure, second minus first. `gained`, `lost`: samples that are right in the
    second, or in the first alone; `changed`: samples with another answer, the first of them in `changes`.
    """

    metric: str
    value: float = 0.0
    interval: Interval | None = None
    samples: int = 0
    gained: int | None = None
    lost: int | None = None
    changed: int = 0
    changes: list[Change] = field(default_factory=list)
    higher_is_better: bool = True


def scores(head: Mapping[str, Any], answers: Iterable[Answer]) -> tuple[Score, ...]:
    """Return the scores of a file of answers, the chief one first. Raises `DataError` where there is none.

    `head`: that of their task.
    """
    if head["task"] == "classification":
        return _top_scores(int(head["best"]), answers)
    if head["task"] == "detection":
        return _precision_scores(answers)
    found = Mean.of(answer["value"] for answer in answers)
    _require(found.count)
    return (Score(head["metric"], found.value, found.interval, found.count),)


def _require(count: int) -> None:
    if not count:
        raise DataError("there is no answer to score")


def _top_scores(best: int, answers: Iterable[Answer]) -> tuple[Score, ...]:
    ranks, count = [0] * best, 0
    for answer in answers:
        count += 1
        if answer["rank"] is not None:
            ranks[answer["rank"]] += 1
    _require(count)
    right = np.cumsum(ranks).tolist()
    return tuple(
        Score(f"top{k}", one / count, share_interval(one, count), count, one)
        for k, one in enumerate(right, 1)
    )


def curves(answers: Iterable[Answer]) -> Curves:
    """Return the precision curves of a detector's answers."""
    made = Curves()
    for answer in answers:
        _add(made, answer)
    _require(made.images)
    return made


def _add(made: Curves, answer: Answer) -> None:
    found = [(category, score, right, ignored) for category, score, right, ignored, *_ in answer["found"]]
    made.add(found, dict(answer["objects"]))


def _precision_scores(answers: Iterable[Answer]) -> tuple[Score, ...]:
    found = curves(answers)
    each = found.precisions()
    if not each.size:
        raise DataError("the data has no object, so there is no precision")
    drawn = [_mean(found.precisions(weights)) for weights in _draws(found.images)]
    whole = Score(MEAN_AP, float(each.mean()), _middle(np.array(drawn)), found.images)
    rows = zip(OVERLAPS, each.mean(axis=1).tolist(), strict=True)
    return (whole, *(Score(f"AP@{overlap:.2f}", value, None, found.images) for overlap, value in rows))


def _draws(images: int) -> Iterator[Reals]:
    """Yield how often each picture counts in samples of as many pictures, drawn with replacement."""
    # Seeded by the number of pictures: all settings get the same draws, and the same again in the next run.
    generator = np.random.default_rng(images)
    for _ in range(_DRAWS):
        yield np.bincount(generator.integers(0, images, images), minlength=images).astype(np.float64)


def _mean(each: Reals) -> float:
    return float(each.mean()) if each.size else float("nan")


def _middle(drawn: Reals) -> Interval | None:
    # A draw of pictures without any object has no precision.
    known = drawn[np.isfinite(drawn)]
    if known.size < _DRAWS // 2:
        return None
    low, high = np.quantile(known, (0.025, 0.975)).tolist()
    return low, high


def difference(
    head: Mapping[str, Any],
    metric: str,
    first: Iterable[Answer],
    second: Iterable[Answer],
    listed: Listed = lambda _change: None,
) -> Difference:
    """Return the paired difference of two settings. Raises `DataError` for answers to other samples."""
    found = Difference(metric)

    def changed(file: str, before: str, after: str) -> None:
        change = Change(file, before, after)
        listed(change)
        found.changed += 1
        if found.changed <= _SHOWN:
            found.changes.append(change)

    pairs = _pairs(first, second)
    if head["task"] == "classification":
        _top_difference(found, pairs, changed)
    elif head["task"] == "detection":
        _precision_difference(found, pairs, changed)
    else:
        found.higher_is_better = head["higher_is_better"]
        _mean_difference(found, pairs, changed)
    return found


_Changed = Callable[[str, str, str], None]
"""Is told a sample and both answers to it."""


def _pairs(first: Iterable[Answer], second: Iterable[Answer]) -> Iterator[tuple[Answer, Answer]]:
    count = 0
    try:
        for a, b in zip(first, second, strict=True):
            if a["file"] != b["file"]:
                raise DataError(f"the answers are not to the same samples: {a['file']} and {b['file']}")
            count += 1
            yield a, b
    except ValueError as error:
        # A `DataError` is a ValueError too: the other one is raised by `zip`, where one side is longer.
        if isinstance(error, DataError):
            raise
        raise DataError(f"one setting has answered more than the {count} samples of the other") from error
    _require(count)


def _top_difference(found: Difference, pairs: Iterator[tuple[Answer, Answer]], changed: _Changed) -> None:
    """McNemar's comparison of Top-k: samples on which both are right, or both wrong, say nothing."""
    best = int(found.metric.removeprefix("top"))
    gained = lost = 0
    for a, b in pairs:
        found.samples += 1
        was, is_now = (one["rank"] is not None and one["rank"] < best for one in (a, b))
        gained, lost = gained + (is_now and not was), lost + (was and not is_now)
        if a["best"][0] != b["best"][0]:
            changed(a["file"], _top_text(a), _top_text(b))
    found.gained, found.lost = gained, lost
    found.value = (gained - lost) / found.samples
    found.interval = paired_share_interval(gained, lost, found.samples)


def _top_text(answer: Answer) -> str:
    sign = "right" if answer["rank"] == 0 else "wrong"
    return f"class {answer['best'][0]} ({sign})"


def _precision_difference(
    found: Difference, pairs: Iterator[tuple[Answer, Answer]], changed: _Changed
) -> None:
    """Compare mAP; the interval is by drawing pictures, the same ones for both (Efron's bootstrap)."""
    sides = Curves(), Curves()
    for pair in pairs:
        found.samples += 1
        texts = []
        for one, side in zip(pair, sides, strict=True):
            _add(side, one)
            sure = [entry for entry in one["found"] if entry[1] >= 0.3]
            # Bit 0 is the overlap of 0.5.
            hits = sum(entry[2] & 1 for entry in sure)
            texts.append(f"{hits} of {sum(n for _, n in one['objects'])} found, {len(sure) - hits} false")
        if texts[0] != texts[1]:
            changed(pair[0]["file"], *texts)
    means = [[_mean(side.precisions(weights)) for side in sides] for weights in _draws(found.samples)]
    found.value = _mean(sides[1].precisions()) - _mean(sides[0].precisions())
    found.interval = _middle(np.array([after - before for before, after in means]))


def _mean_difference(found: Difference, pairs: Iterator[tuple[Answer, Answer]], changed: _Changed) -> None:
    mean = Mean()
    for a, b in pairs:
        mean.add(b["value"] - a["value"])
        if a["value"] != b["value"]:
            changed(a["file"], f"{a['value']:.6g}", f"{b['value']:.6g}")
    found.samples, found.value, found.interval = mean.count, mean.value, mean.interval
