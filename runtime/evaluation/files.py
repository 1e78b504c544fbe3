"""A model that a file descriptor holds, and outputs as a `tf.Example`."""

import os
import re
import struct
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime.common.protobuf import integers, message
from runtime.delegates.base import Array
from runtime.evaluation.flags import FlagError


@contextmanager
def graph_file(graph: str) -> Iterator[Path]:
    """Give the path of a model; of `fd:NUMBER:OFFSET:SIZE`, a part of an open file, that of a copy.

    Raises `FlagError` for a descriptor that is not open, or a part that its file does not have.
    """
    if not graph.startswith("fd:"):
        yield Path(graph)
        return
    found = re.fullmatch(r"fd:(\d{1,9}):(\d{1,18}):(\d{1,18})", graph)
    if found is None:
        raise FlagError(f"--graph={graph} is not of the form fd:NUMBER:OFFSET:SIZE")
    number, offset, size = map(int, found.groups())
    with tempfile.NamedTemporaryFile(suffix=".tflite") as copy:
        try:
            there = os.fstat(number).st_size
            if offset + size > there:
                raise FlagError(f"--graph={graph}: the file has {there} bytes")
            while size:
                # "pread" leaves the descriptor's own position as its owner has it.
                part = os.pread(number, min(size, 1 << 20), offset)
                if not part:
                    raise FlagError(f"--graph={graph}: the file ends at {offset} bytes, shorter than it was")
                copy.write(part)
                offset, size = offset + len(part), size - len(part)
        except OSError as error:
            raise FlagError(f"--graph={graph}: {error.strerror}") from error
        copy.flush()
        yield Path(copy.name)


def example(outputs: Iterable[tuple[str, Array]]) -> bytes:
    """Return a `tf.Example` of the outputs: the elements of each in order, as reals, integers or bytes.

    The numbers of the fields are those of TensorFlow's `example.proto` and `feature.proto`.
    """
    features = (message(1, message(1, name.encode()) + message(2, _feature(a))) for name, a in outputs)
    return message(1, b"".join(features))


def _feature(values: Array) -> bytes:
    flat = values.ravel()
    if values.dtype.kind == "f":
        return message(2, message(1, struct.pack(f"<{flat.size}f", *flat.tolist())))
    if values.dtype.kind in "iub":
        # Of a negative integer, the two's complement in 64 bits.
        return message(3, integers(1, (int(value) & 0xFFFF_FFFF_FFFF_FFFF for value in flat.tolist())))
    return message(1, b"".join(message(1, bytes(value)) for value in flat.tolist()))
