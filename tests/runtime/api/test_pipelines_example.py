"""The example of a zero-copy and an asynchronous pipeline: every form has the same answers."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.needs import REPOSITORY


@pytest.mark.slow
def test_the_example_prints_what_its_pipelines_saved():
    command = [sys.executable, "examples/pipelines.py", "examples/kinds/float32.tflite", "2"]
    ran = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True)
    zero_copy, asynchronous, memory = ran.stdout.splitlines()
    form = r"{}: \d+\.\d{{3}} -> \d+\.\d{{3}} ms a frame, saved -?\d+\.\d{{3}} ms"
    assert re.fullmatch(form.format("zero copy"), zero_copy)
    assert re.fullmatch(form.format("asynchronous"), asynchronous)
    assert memory == "the device works on the buffers themselves"
