"""A runner's files for its agent are of a bounded size."""

from __future__ import annotations

import pytest

from agent.attempt.files import RESULT_FILE, RunnerResult
from agent.attempt.result import Outcome, from_result_file
from agent.wire.messages import Reason, ReasonCode, Status
from tests.agent.embedded_agent import job


def test_a_result_file_beyond_the_limit_fails_the_attempt(tmp_path):
    found = RunnerResult(status=Status.DONE, reason=None)
    (tmp_path / RESULT_FILE).write_text(found.model_dump_json() + " " * 3_000_000)
    result = from_result_file(Outcome(job(("0" * 64, 1)), None, tmp_path), tmp_path / "store")
    assert (result.status, result.reason.code) == (Status.FAILED, ReasonCode.RUNNER_ERROR)
    assert "the limit is" in result.reason.text


@pytest.mark.parametrize("size", [0, 1])
def test_a_small_result_file_is_read(tmp_path, size):
    found = RunnerResult(status=Status.UNSUPPORTED, reason=None, facts={"fact": "x" * size})
    (tmp_path / RESULT_FILE).write_text(found.model_dump_json())
    result = from_result_file(Outcome(job(("0" * 64, 1)), None, tmp_path), tmp_path / "store")
    assert result.facts["fact"] == "x" * size


@pytest.mark.parametrize(
    ("status", "code"),
    [(Status.CANCELLED, None), (Status.FAILED, ReasonCode.CANCELLED), (Status.FAILED, ReasonCode.AGENT_LOST),
     (Status.FAILED, ReasonCode.INTERRUPTED), (Status.DONE, ReasonCode.ARTIFACT)],
)  # fmt: skip
def test_a_runner_cannot_speak_for_its_agent_or_the_farm(tmp_path, status, code):
    reason = None if code is None else Reason(code=code, text="so it says")
    (tmp_path / RESULT_FILE).write_text(RunnerResult(status=status, reason=reason).model_dump_json())
    result = from_result_file(Outcome(job(("0" * 64, 1)), None, tmp_path), tmp_path / "store")
    assert (result.status, result.reason.code) == (Status.FAILED, ReasonCode.RUNNER_ERROR)
