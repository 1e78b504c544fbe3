"""The figure of a model on labelled data, and its difference from a baseline's."""

from typing import Literal

from pydantic import Field

from agent.wire.bounded import MAX_CHANGES, Count, Key, Sha256, Wire
from agent.wire.plan import LabelledMetric


class ChangedAnswer(Wire):
    """A sample to which the baseline gives another answer, `before`; both are as its task puts them."""

    file: Key
    before: Key
    after: Key


class LabelledDrop(Wire):
    """The difference from the baseline on the same samples: its figure is `value` higher, negative is lower.

    `gained`, `lost`: the samples that one of both alone has right, null where no sample is right or wrong.
    `changed`: the samples with another answer, the first of them in `changes`.
    """

    baseline: Key
    value: float
    ci95: tuple[float, float] | None
    gained: Count | None
    lost: Count | None
    changed: Count
    changes: tuple[ChangedAnswer, ...] = Field(default=(), max_length=MAX_CHANGES)
    max_drop: float | None = None


class LabelledScore(Wire):
    """The figure of a model on labelled data: `share`, a share of right samples or another `metric`.

    `right` is null where no sample is right or wrong. `ci95` is the interval of the figure on such samples.
    `drop`: null without a baseline. `verdict` judges both intervals, by `at_least` and the drop's `max_drop`;
    null where neither is required. `answers_sha256` names the artifact with the answer to every sample.
    """

    metric: LabelledMetric
    samples: Count
    right: Count | None
    share: float
    ci95: tuple[float, float] | None = None
    at_least: float | None = None
    verdict: Literal["pass", "fail", "inconclusive"] | None = None
    drop: LabelledDrop | None = None
    answers_sha256: Sha256 | None = None
