"""Reads the raw files of a result: its samples, and its answers to labelled data."""

import gzip
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from agent.wire.measurement import ProcessSamples
from orchestrator.config.home import FarmHome
from orchestrator.errors import FarmError
from orchestrator.results.records import CellRecord
from orchestrator.sources.store import Store

_SAMPLES: TypeAdapter[list[ProcessSamples]] = TypeAdapter(list[ProcessSamples])

_LONGEST_ANSWER: Final = 1 << 24
"""Bytes of a line that is read. Chosen: a detector's answer to a picture has some kilobytes; an agent may
send any file, which could otherwise unpack to fill the memory."""


class RawFiles(ABC):
    """Reads the files of this machine's store in `home`, and fetches those that it lacks."""

    home: FarmHome

    def samples(self, cell: CellRecord) -> list[ProcessSamples]:
        """Raw samples of the result a cell shows, one entry per process; empty where it has none.

        Raises `FarmError` where the stored file is gone or damaged.
        """
        measured = cell.measurement
        if measured is None or measured.samples_sha256 is None:
            return []
        path = self._found(measured.samples_sha256)
        try:
            return _SAMPLES.validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise FarmError(
                f"the samples of cell {cell.cell_id} in {path} cannot be read: {error}"
            ) from error

    def answers(self, cell: CellRecord) -> Iterator[dict[str, Any]]:
        """Yield the head, the answer to each sample, then each that differs from the baseline's (`changed`).

        Raises `FarmError` where the cell's result has none, or they cannot be read.
        """
        score = None if cell.measurement is None else cell.measurement.labelled
        if score is None or score.answers_sha256 is None:
            raise FarmError(f"cell {cell.cell_id} has no answers to labelled data")
        path = self._found(score.answers_sha256)
        try:
            with gzip.open(path) as file:
                while line := file.readline(_LONGEST_ANSWER):
                    yield json.loads(line)
        # Of a damaged file, gzip raises any of `OSError`, `EOFError` and `zlib.error`.
        except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
            raise FarmError(
                f"the answers of cell {cell.cell_id} in {path} cannot be read: {error}"
            ) from error

    def _found(self, sha256: str) -> Path:
        store = Store(self.home.store)
        if store.find(sha256) is None:
            self._fetch(sha256)
        return store.path(sha256)

    @abstractmethod
    def _fetch(self, sha256: str) -> None:
        """Fetch a file from the machine that has it. Raises `FarmError`."""
