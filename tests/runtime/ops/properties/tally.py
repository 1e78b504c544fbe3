"""Counts the examples of a row that LiteRT ran, refused or died on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.model.schema import TensorType
from tests.oracle import NOT_RUN
from tests.runtime.ops.properties.rows import Row


@dataclass
class Tally:
    """The outcomes of the examples of a row in one type on LiteRT."""

    compared: int = 0
    deaths: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def judge(
        self, row: Row, tensor_type: TensorType, record_property: Callable[[str, object], None]
    ) -> None:
        """Keep what LiteRT did not run for the end of the run, and fail where that is too much."""
        examples = self.compared + len(self.deaths) + len(self.refusals)
        text = f"{row} {tensor_type.name}: of {examples} examples LiteRT died on {len(self.deaths)}"
        text += f" and refused {len(self.refusals)}"
        for reason in sorted({*self.deaths, *self.refusals}):
            text += f"\n    {reason}"
        if examples > self.compared:
            record_property(NOT_RUN, text)
        assert self.compared, text
        assert len(self.refusals) <= row.refusals * examples, text
