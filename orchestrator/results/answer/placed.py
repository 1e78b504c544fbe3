"""The cells of a campaign as a table has them: by column and model, each with its ratio over the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from orchestrator.results.records import CellRecord
from orchestrator.results.speedups import Baselines, MeanSpeedUp, SpeedUp, mean_speedup, speedup

ON_CPU: Final = " (OpenCL on CPU)"
"""How the name of a device ends that is a processor behind OpenCL (`agent.runner.probe.opencl_devices`)."""

Key: TypeAlias = tuple[str, str, str]
"""Delegate, device and level: what a column is of."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The cells by column and model; `ratios` by the cell's id, None for the baseline and without one."""

    baseline: str | None
    models: tuple[str, ...]
    columns: Mapping[Key, Mapping[str, CellRecord]]
    ratios: Mapping[str, SpeedUp | None]

    @classmethod
    def of(cls, cells: Sequence[CellRecord], baseline: str | None) -> Placed:
        """Place the cells: the baseline's columns first, then those of the fastest on the whole."""
        baselines = Baselines.among(baseline, cells)
        columns: dict[Key, dict[str, CellRecord]] = {}
        for cell in cells:
            columns.setdefault((cell.delegate, cell.device, cell.level), {})[cell.model] = cell
        models = tuple(dict.fromkeys(cell.model for cell in cells))
        ratios = {cell.cell_id: speedup(cell, baselines.of(cell)) for cell in cells}
        placed = cls(baseline, models, columns, ratios)
        return replace(placed, columns={key: columns[key] for key in sorted(columns, key=placed.rank)})

    def rank(self, key: Key) -> tuple[bool, float]:
        """Sort the baseline first, then by the mean ratio; what has none comes last."""
        mean = self.mean(key)
        return key[0] != self.baseline, 0.0 if mean is None else -mean.ratio

    @property
    def contenders(self) -> list[Key]:
        """The columns that are compared with the baseline; none where no cell of it is there."""
        has_baseline = any(delegate == self.baseline for delegate, _, _ in self.columns)
        return [key for key in self.columns if has_baseline and key[0] != self.baseline]

    def ratios_of(self, key: Key) -> list[SpeedUp | None]:
        """Return the ratio of each model in a column."""
        own = self.columns[key]
        return [self.ratios[own[model].cell_id] if model in own else None for model in self.models]

    def mean(self, key: Key) -> MeanSpeedUp | None:
        """Return the geometric mean of a column's ratios."""
        return mean_speedup([one for one in self.ratios_of(key) if one is not None])

    def names(self) -> dict[Key, str]:
        """Name each column by its delegate, and by whatever else tells it from another."""
        counted = {key: {threads(cell) for cell in own.values()} - {""} for key, own in self.columns.items()}
        unequal = len(set().union(*counted.values())) > 1
        levels = {level for _, _, level in self.columns}
        names = {}
        for key, own in self.columns.items():
            delegate, device, level = key
            name = delegate
            if len({other[1] for other in self.columns if other[0] == delegate}) > 1:
                name += f"@{device}" if device != "-" else " (no device)"
            elif all(cell.device_name.endswith(ON_CPU) for cell in own.values()):
                name += ON_CPU
            name += f" {level}" if len(levels) > 1 else ""
            if unequal and counted[key]:
                name += f" (threads: {', '.join(sorted(counted[key], key=int))})"
            names[key] = name
        return names


def threads(cell: CellRecord) -> str:
    """Return the number of threads of a cell's measurement, as digits; empty if it is not recorded."""
    stated = "" if cell.measurement is None else cell.measurement.settings.get("threads", "")
    return stated if stated.isdecimal() else ""
