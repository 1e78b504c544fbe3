"""Reads the raw files of a result: its samples, and its answers to labelled data."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from agent.wire.measurement import ProcessSamples
from orchestrator.errors import FarmError
from orchestrator.results.records import CellRecord
from orchestrator.sources.store import Store

_SAMPLES: TypeAdapter[list[ProcessSamples]] = TypeAdapter(list[ProcessSamples])

_LONGEST_ANSWER: Final = 1 << 24
"""Bytes of a line that is read. Chosen: a detector's answer to a picture has some kilobytes; an agent may
send any file, which could otherwise unpack to fill the memory."""


def read_samples(cell: CellRecord, store: Store, fetch: Callable[[str], None]) -> list[ProcessSamples]:
    """Read the samples that a cell's result names, fetched if the store lacks them. Raises `FarmError`."""
    measured = cell.measurement
    if measured is None or measured.samples_sha256 is None:
        return []
    if store.find(measured.samples_sha256) is None:
        fetch(measured.samples_sha256)
    path = store.path(measured.samples_sha256)
    try:
        return _SAMPLES.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise FarmError(f"the samples of cell {cell.cell_id} in {path} cannot be read: {error}") from error


def read_answers(cell: CellRecord, store: Store, fetch: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Yield the head, the answer to each sample, then each that differs from the baseline's (`changed`).

    Raises `FarmError` where the cell's result has none, or they cannot be read.
    """
    score = None if cell.measurement is None else cell.measurement.labelled
    if score is None or score.answers_sha256 is None:
        raise FarmError(f"cell {cell.cell_id} has no answers to labelled data")
    if store.find(score.answers_sha256) is None:
        fetch(score.answers_sha256)
    path = store.path(score.answers_sha256)
    try:
        with gzip.open(path) as file:
            while line := file.readline(_LONGEST_ANSWER):
                yield json.loads(line)
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise FarmError(f"the answers of cell {cell.cell_id} in {path} cannot be read: {error}") from error
