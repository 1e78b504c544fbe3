"""LiteRT is asked a question in one run of the suite and not in the next one; another question is asked."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.oracle import LiteRtError, OracleDiedError, answer_of_litert
from tests.services import kept_answers


def asked(_litert, log, end):
    """In the worker: note the call; return the end, raise it, or die of it."""
    with Path(log).open("a", encoding="utf-8") as file:
        file.write("asked\n")
    if isinstance(end, signal.Signals):
        os.kill(os.getpid(), end)
    if isinstance(end, Exception):
        raise end
    return end


@pytest.fixture
def answer(tmp_path, monkeypatch):
    """Return a function that asks, and tells what came and how often LiteRT has been asked."""
    monkeypatch.setenv("FARM_TEST_CACHE", str(tmp_path))
    log = tmp_path / "log"

    def answer(end):
        try:
            found = answer_of_litert("tests.services.test_kept_answers:asked", str(log), end)
        except (LiteRtError, OracleDiedError) as error:
            found = type(error)
        return found, len(log.read_text(encoding="utf-8").splitlines())

    return answer


def test_a_question_is_asked_once_and_another_one_again(answer):
    assert answer("a result") == answer("a result") == ("a result", 1)
    assert answer("another") == ("another", 2)


def test_an_error_and_a_crash_are_not_kept(answer):
    assert answer(ValueError("refused")) == (LiteRtError, 1)
    assert answer(ValueError("refused")) == (LiteRtError, 2)
    assert answer(signal.SIGABRT) == (OracleDiedError, 3)
    assert answer(signal.SIGABRT) == (OracleDiedError, 4)


@pytest.mark.parametrize("kind", [MemoryError, FileNotFoundError, ModuleNotFoundError])
def test_want_of_memory_of_a_file_or_a_module_fails_the_test_that_asks(answer, kind):
    with pytest.raises(kind, match="wanted"):
        answer(kind("wanted"))


def test_another_litert_is_asked(answer, monkeypatch):
    assert answer("a result") == ("a result", 1)
    monkeypatch.setattr(kept_answers, "_litert", lambda: b"another")
    assert answer("a result") == ("a result", 2)


@pytest.mark.parametrize("changed", [__name__, "tests.oracle"])
def test_another_text_of_the_function_or_of_the_worker_is_asked(answer, monkeypatch, changed):
    known = kept_answers._state
    assert answer("a result") == ("a result", 1)
    monkeypatch.setattr(kept_answers, "_state", lambda name: b"another" if name == changed else known(name))
    assert answer("a result") == ("a result", 2)
