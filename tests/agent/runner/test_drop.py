"""The drop of an arm's answers against the baseline's."""

from __future__ import annotations

import json

import pytest

from agent.attempt.files import RunnerResult
from agent.runner.judge.drop import with_drop
from agent.runner.judge.verdict import scored
from agent.wire.labelled import LabelledScore
from agent.wire.messages import Status
from runtime.errors import FarmRuntimeError

HEAD = {"task": "classification", "best": 3}
SCORE = LabelledScore(metric="top1", samples=100, right=60, share=0.6, ci95=(0.5, 0.69))


def answers(path, ranks):
    lines = [HEAD, *({"file": f"{i}.png", "best": [rank, 9], "rank": rank} for i, rank in enumerate(ranks))]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def compared(folder, wrong, count=100, max_drop=0.05, score=SCORE):
    theirs, own = (
        answers(folder / "base", [0] * count),
        answers(folder / "own", [1] * wrong + [0] * (count - wrong)),
    )
    return with_drop(score, own, "litert@cpu", theirs, max_drop)


@pytest.mark.parametrize(("wrong", "verdict"), [(0, "pass"), (5, "inconclusive"), (30, "fail")])
def test_a_drop_is_judged_by_the_whole_interval(tmp_path, wrong, verdict):
    found = compared(tmp_path, wrong)
    assert found.drop is not None
    assert (found.drop.lost, found.drop.gained, found.drop.changed) == (wrong, 0, wrong)
    assert (found.verdict, found.drop.value) == (verdict, -wrong / 100)


def test_the_worse_of_two_verdicts_stands_and_a_failed_one_is_a_wrong_output(tmp_path):
    passed = SCORE.model_copy(update={"verdict": "pass", "at_least": 0.4})
    assert compared(tmp_path, 5, score=passed).verdict == "inconclusive"
    failed = compared(tmp_path, 30, score=passed)
    result = scored(RunnerResult(status=Status.DONE, reason=None), failed)
    assert result.status is Status.FAILED
    assert result.reason is not None
    assert "-0.3 [" in result.reason.text
    assert "against litert@cpu, where a drop of 0.05 is allowed" in result.reason.text


def test_without_a_baselines_answers_a_drop_is_not_judged(tmp_path):
    own = answers(tmp_path / "own", [0, 1])
    assert with_drop(SCORE, own, "b", tmp_path / "none", 0.1).verdict == "inconclusive"
    assert with_drop(SCORE, own, "b", tmp_path / "none", None) == SCORE


def test_only_the_first_changes_are_told(tmp_path):
    found = compared(tmp_path, 300, count=400).drop
    assert found is not None
    assert (len(found.changes), found.changed) == (100, 300)


def test_what_is_no_answer_is_an_error_with_the_baselines_name(tmp_path):
    own, theirs = answers(tmp_path / "own", [0, 1]), tmp_path / "base"
    for content in ("{}\n{}\n{}\n", "[]\n[]\n[]\n", "x"):
        theirs.write_text(content)
        with pytest.raises(FarmRuntimeError, match="the answers of b cannot be compared"):
            with_drop(SCORE, own, "b", theirs, 0.1)
