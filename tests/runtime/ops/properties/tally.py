"""How many examples of a row LiteRT ran, refused or died on."""

from __future__ import annotations

from dataclasses import dataclass, field

from runtime.model.schema import TensorType
from tests.runtime.ops.properties.rows import Row

# What the end of the run prints: one text for each row with examples that LiteRT did not run.
REPORTS: list[str] = []


@dataclass
class Tally:
    """What LiteRT did with the examples of a row in one type."""

    compared: int = 0
    deaths: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def judge(self, row: Row, tensor_type: TensorType) -> None:
        """Keep what LiteRT did not run for the end of the run, and fail where that is too much."""
        examples = self.compared + len(self.deaths) + len(self.refusals)
        text = f"{row} {tensor_type.name}: of {examples} examples LiteRT died on {len(self.deaths)}"
        text += f" and refused {len(self.refusals)}"
        for reason in sorted({*self.deaths, *self.refusals}):
            text += f"\n    {reason}"
        if examples > self.compared:
            REPORTS.append(text)
        assert self.compared, text
        assert len(self.refusals) <= row.refusals * examples, text
