"""The file that verbs on models read: a model, a skeleton in a temporary file, or a signature in one."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime.model.graph import Model
from runtime.model.reader import load_model
from runtime.model.signatures import signature_file
from runtime.model.skeleton import is_skeleton, restore_skeleton


@contextmanager
def readable_model(file: Path, signature: str | None = None) -> Iterator[tuple[Path, Model]]:
    """Give path and graph of a `.tflite` file, or of a `.skel` file restored to a temporary one.

    With a `signature`, its graph is the first of a temporary file, in place of the file's own first one.
    Raises `OSError` and `ModelFormatError`.
    """
    with file.open("rb") as stream:
        head = stream.read(4096)
    if not is_skeleton(head) and not signature:
        yield file, load_model(file)
        return
    content: bytes | bytearray = file.read_bytes()
    content = restore_skeleton(bytes(content)) if is_skeleton(head) else content
    with tempfile.NamedTemporaryFile(suffix=".tflite") as made:
        made.write(signature_file(bytes(content), signature) if signature else content)
        made.flush()
        yield Path(made.name), load_model(made.name)
