"""The drop of an arm's answers against the baseline's."""

from __future__ import annotations

import gzip
import hashlib
import json

import pytest

from agent.attempt.files import ANSWERS_FILE, KEPT_ANSWERS_FILE, RunnerResult
from agent.runner.judge.drop import with_answers
from agent.runner.judge.verdict import scored
from agent.wire.labelled import LabelledScore
from agent.wire.messages import Status
from runtime.errors import DataError

HEAD = {"task": "classification", "best": 3}
SCORE = LabelledScore(metric="top1", samples=100, right=60, share=0.6, ci95=(0.5, 0.69))


def answers(folder, ranks):
    folder.mkdir(exist_ok=True)
    lines = [HEAD, *({"file": f"{i}.png", "best": [rank, 9], "rank": rank} for i, rank in enumerate(ranks))]
    (folder / ANSWERS_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def compared(folder, wrong, count=100, max_drop=0.05, score=SCORE):
    theirs, own = (
        answers(folder / "base", [0] * count),
        answers(folder / "own", [1] * wrong + [0] * (count - wrong)),
    )
    return with_answers(score, own, ("litert@cpu", theirs), max_drop)


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
    assert with_answers(SCORE, own, ("b", tmp_path / "none"), 0.1).verdict == "inconclusive"
    unjudged = with_answers(SCORE, own, ("b", tmp_path / "none"), None)
    assert (unjudged.verdict, unjudged.drop) == (None, None)


def test_the_first_changes_are_told_and_the_file_for_the_store_has_every_answer_and_change(tmp_path):
    score = compared(tmp_path, 300, count=400)
    assert score.drop is not None
    assert (len(score.drop.changes), score.drop.changed) == (100, 300)
    content = (tmp_path / "own" / KEPT_ANSWERS_FILE).read_bytes()
    assert hashlib.sha256(content).hexdigest() == score.answers_sha256
    head, *lines = [json.loads(line) for line in gzip.decompress(content).splitlines()]
    assert head == HEAD
    assert [line["file"] for line in lines[:400]] == [f"{i}.png" for i in range(400)]
    assert [line["changed"] for line in lines[400:]] == [f"{i}.png" for i in range(300)]
    assert lines[-1]["after"] == "class 1 (wrong)"


def test_what_is_no_answer_is_an_error_with_the_baselines_name(tmp_path):
    own, theirs = answers(tmp_path / "own", [0, 1]), answers(tmp_path / "base", [])
    for content in ("{}\n{}\n{}\n", "[]\n[]\n[]\n", "x"):
        (theirs / ANSWERS_FILE).write_text(content)
        with pytest.raises(DataError, match="the answers of b cannot be compared"):
            with_answers(SCORE, own, ("b", theirs), 0.1)
    (own / ANSWERS_FILE).unlink()
    with pytest.raises(DataError, match="the answers cannot be kept"):
        with_answers(SCORE, own, None, None)
