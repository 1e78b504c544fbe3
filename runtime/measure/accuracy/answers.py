"""The answers to every sample in a file: a head, then one answer a line, so that a pass can go on later."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from runtime.delegates.base import Array
from runtime.errors import DataError

Detail = Mapping[str, Any]
"""An input or an output, as `get_input_details` describes it: `name`, `shape`, `dtype`, `quantization`."""

Answer = Mapping[str, Any]
"""The answer to one sample, judged by its truth, in the types of JSON. All have `file`, the sample's name."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: its name for texts, the value of each input, and the truth in the form of its task."""

    name: str
    inputs: tuple[Array, ...]
    truth: Any


class Task(Protocol):
    """A set of samples and the way in which a model's outputs become answers."""

    @property
    def head(self) -> Mapping[str, Any]:
        """Return what scores of the answers depend on besides them, in the types of JSON."""

    @property
    def count(self) -> int:
        """Return the number of samples."""

    def samples(self, start: int) -> Iterator[Sample]:
        """Yield the samples from this number on, each made when it is asked for. Raises `DataError`."""

    def answer(self, sample: Sample, outputs: Sequence[Array]) -> Answer:
        """Return the answer that these outputs are. Raises `DataError`."""


class Answers:
    """A file that is written to its end. `count`: the answers that it had already."""

    def __init__(self, path: Path, head: Mapping[str, Any]) -> None:
        """Open or begin the file. Raises `OSError`, and `DataError` for the answers to another question."""
        self.count = 0
        self._file: IO[bytes]
        if path.exists() and path.stat().st_size:
            # By way of JSON, in which tuples are lists.
            if answers_head(path) != json.loads(json.dumps(head)):
                raise DataError(
                    f"{path}: holds the answers of another model, setting or data set; name another "
                    "folder, or delete the file"
                )
            self._file = path.open("r+b")
            # A line that an interruption cut is given again.
            end = len(self._file.readline())
            for line in self._file:
                if not line.endswith(b"\n"):
                    break
                self.count, end = self.count + 1, end + len(line)
            self._file.truncate(end)
            self._file.seek(0, os.SEEK_END)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")
        self._write(head)

    def add(self, answer: Answer) -> None:
        """Write an answer."""
        self._write(answer)
        self.count += 1

    def _write(self, value: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(value).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def answers_head(path: Path) -> dict[str, Any]:
    """Return the head of a file. Raises `OSError`, and `DataError` for a file that has none."""
    with path.open("rb") as file:
        return _parsed(path, file.readline())


def read_answers(path: Path) -> Iterator[Answer]:
    """Yield the answers one after the other. Raises `OSError`, `DataError`."""
    with path.open("rb") as file:
        file.readline()
        for line in file:
            yield _parsed(path, line)


def _parsed(path: Path, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise DataError(f"{path}: a line is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise DataError(f"{path}: a line is no answer")
    return found
