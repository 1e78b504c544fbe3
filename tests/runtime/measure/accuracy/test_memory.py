"""The memory of a pass does not grow with its samples."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.tools.pictures import GREY, classifier, grey_picture

FEW, MANY = 1_000, 50_000

FLAT = 1.10
"""How much larger the peak of the memory may be with fifty times as many samples."""

PASS = """
import json, sys
from pathlib import Path
from runtime.measure.accuracy.answers import read_answers
from runtime.measure.accuracy.data import Data
from runtime.measure.accuracy.evaluating import evaluate
from runtime.measure.accuracy.scores import difference, scores
from runtime.measure.loading import Opener
from runtime.measure.memory import peak_bytes
model, data, answers = map(Path, sys.argv[1:])
found = evaluate(Opener.prepare("litert", {"threads": 1}), model, Data(data), answers, {})
first = scores(found.head, read_answers(answers))[0]
difference(found.head, first.metric, read_answers(answers), read_answers(answers))
print(json.dumps([first.samples, first.value, peak_bytes()]))
"""


def passed(folder: Path, data: Path) -> list[float]:
    """Return samples, chief figure and the peak of the memory in bytes of a pass in a new process."""
    command = [sys.executable, "-c", PASS, str(folder / "m.tflite"), str(data), f"{data}.jsonl"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def pictures(folder: Path, count: int) -> Path:
    """Make a folder with so many pictures of four classes."""
    made = folder / f"pictures-{count}"
    made.mkdir()
    for level in range(4):
        (folder / f"{level}.png").write_bytes(grey_picture(GREY[level]))
    for number in range(count):
        os.link(folder / f"{number % 4}.png", made / f"{number:06}.png")
    (made / "ground_truth.txt").write_text("".join(f"{number % 4}\n" for number in range(count)))
    return made


def zipped(folder: Path, count: int) -> Path:
    """Make a zip with so many pictures of four classes."""
    with zipfile.ZipFile(folder / f"{count}.zip", "w") as made:
        for number in range(count):
            made.writestr(f"{number:06}.png", grey_picture(GREY[number % 4]))
        made.writestr("ground_truth.txt", "".join(f"{number % 4}\n" for number in range(count)))
    return folder / f"{count}.zip"


def packed(folder: Path, count: int) -> Path:
    """Make a tar with so many pictures of four classes."""
    made = folder / f"{count}.tar"
    # Else a picture of which the folder has another name would be a link in the tar.
    with tarfile.open(made, "w", dereference=True) as tar:
        tar.add(pictures(folder, count), ".")
    return made


def arrays(folder: Path, count: int) -> Path:
    """Write as many samples as arrays."""
    levels = np.array(GREY)[np.arange(count) % 4] / 127.5 - 1
    inputs = np.broadcast_to(levels.astype(np.float32)[:, None, None, None], (count, 8, 8, 3))
    np.savez(folder / f"{count}.npz", labels=np.arange(count) % 4, inputs=inputs)
    return folder / f"{count}.npz"


@pytest.mark.exhaustive
@pytest.mark.parametrize("made", [pictures, packed, zipped, arrays])
def test_it_is_flat_from_a_thousand_to_fifty_thousand_samples(tmp_path, made):
    (tmp_path / "m.tflite").write_bytes(classifier())
    few, many = (passed(tmp_path, made(tmp_path, count)) for count in (FEW, MANY))
    assert (few[:2], many[:2]) == ([FEW, 1.0], [MANY, 1.0])
    assert many[2] < FLAT * few[2], f"{few[2] / 2**20:.1f} and {many[2] / 2**20:.1f} MiB"
