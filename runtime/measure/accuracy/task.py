"""A task: samples with their truth, and the answers that a model gives to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from runtime.delegates.base import Array

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
