"""The definition of a cell's figure: its name, its unit, and how it is read, written and explained."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from agent.wire.measurement import Measurement
from orchestrator.results import format as text
from orchestrator.results.records import CellRecord

Better: TypeAlias = Literal["lower", "higher", "none"]
"""Which values are better; `none` for a count that is neither good nor bad."""

Section: TypeAlias = Literal["latency", "resources", "init", "memory", "output"]
"""What a figure describes: the time of an invoke, what a run needs besides, the init by stage, the memory by
stage and what crosses into that of a device or stays in caches, or how right the output is."""


def measured(*path: str) -> Callable[[CellRecord], Any]:
    """Return what reads a field of a cell's `Measurement`, by its path; None where a part is missing."""

    def read(cell: CellRecord) -> Any:
        found: Any = cell.measurement
        for name in path:
            found = None if found is None else getattr(found, name)
        return found

    return read


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a cell.

    `key` is its path in the results format (`latency_ms.p50`); `unit` is that of the exported value.
    `read` returns the value, None where the cell has none; `why_none` then gives the reason. `text` writes a
    value, without the unit where `unit_in_heading`: tables name that unit once, in their heading.
    """

    key: str
    label: str
    unit: str
    better: Better
    section: Section
    help: str
    read: Callable[[CellRecord], Any]
    text: Callable[[Any], str]
    why_none: Callable[[Measurement], str] = lambda _: "not recorded"
    unit_in_heading: bool = False
    parts: tuple[str, ...] = ()
    """Names of the members of a value that is a tuple; each is a column of its own in CSV."""
    void_if_wrong: bool = False
    """Whether a wrong output voids the figure: a fast wrong answer is evidence and never exported."""
    own_line: bool = True
    """Whether pages and `farm show` give it a line; False where a sentence contains it: on labelled data
    (`format.labelled`) or on a pass (`passes.PASS_RESULTS`)."""
    chip: bool = False
    """Whether the site's matrix shows it below the latency of each cell."""
    interval_of: str = ""
    """Key of the figure whose interval it is; tables may write it below that figure."""
    table: Callable[[Measurement], str] | None = None
    """Writes its line below the latency in the comparison table; None: no line."""

    @property
    def direction(self) -> str:
        """`lower is better`, `higher is better`, or empty where neither is."""
        return "" if self.better == "none" else f"{self.better} is better"

    @property
    def columns(self) -> tuple[str, ...]:
        """Its columns in CSV: the key, or one for each part of a tuple."""
        return tuple(f"{self.key}.{part}" for part in self.parts) or (self.key,)

    def exported(self, cell: CellRecord) -> Any:
        """Return the value for a data file, None where a wrong output voids it."""
        return None if self.void_if_wrong and cell.struck_out else self.read(cell)

    def short_text(self, cell: CellRecord) -> str:
        """Write the value, a dash where it is missing."""
        value = self.read(cell)
        return text.NOTHING if value is None else self.text(value)

    def full_text(self, cell: CellRecord) -> str:
        """Write the value with its unit, or `none: ` and the reason."""
        value = self.read(cell)
        if value is None:
            why = "nothing was measured" if cell.measurement is None else self.why_none(cell.measurement)
            return f"none: {why}"
        return f"{self.text(value)} {self.unit}" if self.unit_in_heading else self.text(value)


def part_of(
    key: str,
    path: tuple[str, ...],
    label: str,
    unit: str,
    section: Section,
    meaning: str,
    write: Callable[[Any], str],
    better: Better = "lower",
    **more: Any,
) -> Metric:
    """Return a figure of a part of the wire's `Measurement` that says in `missing` why it lacks one."""
    part, *_, name = path
    return Metric(
        key, label, unit, better, section, meaning, measured(*path), write,
        why_none=lambda m: getattr(m, part).missing.get(name, "not recorded"), **more,
    )  # fmt: skip


def time_of(
    key: str,
    path: tuple[str, ...],
    label: str,
    section: Section,
    meaning: str,
    write: Callable[[Any], str] = text.milliseconds,
    **more: Any,
) -> Metric:
    """Return the same of a time in milliseconds, which a wrong output voids."""
    more = {"unit_in_heading": True, "void_if_wrong": True} | more
    return part_of(key, path, label, "ms", section, meaning, write, **more)
