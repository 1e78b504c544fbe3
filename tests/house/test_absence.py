"""A test says what the machine lacks, and fails the run under CI: a skip there would hide it."""

from __future__ import annotations

import importlib.util
import runpy

import pytest

from tests.needs import REPOSITORY

TESTS = REPOSITORY / "tests"
SKIPS_EVERYWHERE = "import" + "orskip"
"""pytest's own function, which skips under CI too."""


def test_no_test_skips_everywhere_for_a_package():
    found = [path for path in TESTS.rglob("*.py") if SKIPS_EVERYWHERE in path.read_text(encoding="utf-8")]
    assert found == []


@pytest.mark.parametrize(
    ("ci", "end"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)], ids=["in CI", "elsewhere"]
)
def test_a_file_whose_package_is_absent_says_so(monkeypatch, ci, end):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    with pytest.raises(end, match="the extra webgpu is not installed"):
        runpy.run_path(str(TESTS / "runtime" / "delegates" / "gpu" / "test_wgsl.py"))
