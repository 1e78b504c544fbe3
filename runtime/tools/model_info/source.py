"""The file that `farm model info` reads: a model, or a skeleton restored to a temporary file."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime.model.graph import Model
from runtime.model.reader import load_model
from runtime.model.skeleton import is_skeleton, restore_skeleton


@contextmanager
def readable_model(file: Path) -> Iterator[tuple[Path, Model]]:
    """Give path and graph of a `.tflite` file, or of a `.skel` file restored to a temporary one.

    Raises `OSError` and `ModelFormatError`.
    """
    with file.open("rb") as stream:
        head = stream.read(4096)
    if not is_skeleton(head):
        yield file, load_model(file)
        return
    with tempfile.NamedTemporaryFile(suffix=".tflite") as restored:
        restored.write(restore_skeleton(file.read_bytes()))
        restored.flush()
        yield Path(restored.name), load_model(restored.name)
