"""Builds the entries of an answer, and places its cells in rows and columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from orchestrator.results import format as text
from orchestrator.results.grading import Graded, grade_of, p50_grade
from orchestrator.results.metric import Metric
from orchestrator.results.metrics import P50, leading
from orchestrator.results.records import BELOW, DROPPED, WRONG_OUTPUT, CellRecord, stated_count, void_reason
from orchestrator.results.speedups import Baselines, MeanSpeedUp, SpeedUp, mean_speedup, speedup
from orchestrator.results.wording import SIGNS, Footnotes, has_no_result, known_percent, ratio_text

NOISY, NOT_JUDGED, PARTLY, AGAIN, IMPORTED = "~", "?", "*", "↻", "°"

FURTHER: Final = ("±", "ops", "cold", "warm", "p90", "memory", "margin", "device")
"""The headings of the further columns, the most important first."""

_WORDS: Final = (WRONG_OUTPUT, BELOW, DROPPED, "void", "failed", "unsupported", "no p50", "cancelled")
"""Words in place of a figure, the worst first; other states follow."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a cell shows no figure: a word, and the reason where there is one."""

    word: str
    reason: str = ""

    @property
    def rank(self) -> int:
        """The rank of its badness, 0 for the worst."""
        return _WORDS.index(self.word) if self.word in _WORDS else len(_WORDS)


def missing(cell: CellRecord, metric: Metric = P50) -> Missing | None:
    """Return why a cell shows no figure; None where it shows one."""
    reason = "" if cell.reason is None else cell.reason.text
    if cell.struck_out:
        return Missing(cell.struck_as, reason)
    if has_no_result(cell) or cell.measurement is None:
        return Missing("excluded" if cell.excluded else cell.status, reason)
    # What another tool measured is never compared, and a figure all the same.
    if cell.imported is None and (void := void_reason(cell)) is not None:
        return Missing("void", void)
    metric = leading(cell) if metric is P50 else metric
    if metric.read(cell) is None:
        return Missing(f"no {metric.label}", metric.why_none(cell.measurement))
    return None


def footnotes(cells: Sequence[CellRecord], metric: Metric = P50) -> Footnotes:
    """Return the reasons of these cells with their marks, the worst first."""
    notes = Footnotes()
    found = [one for cell in cells if (one := missing(cell, metric)) is not None and one.reason]
    for one in sorted(found, key=lambda one: one.rank):
        notes.mark(one.reason)
    return notes


def entry(cell: CellRecord, found: SpeedUp | None, notes: Footnotes, metric: Metric = P50) -> "Entry":
    """Write a cell; `found` is its speed-up over the baseline, if it has one."""
    lacks = missing(cell, metric)
    if lacks is not None:
        return Entry(word=f"{lacks.word} [{notes.mark(lacks.reason)}]" if lacks.reason else lacks.word)
    if metric is not P50:
        return Entry(time=metric.short_text(cell))
    shown = None if found is None or found.verdict == "void" else found
    return Entry(
        sign="" if shown is None else SIGNS[shown.verdict],
        time=_time(cell),
        # Only a paired ratio has a grade: an unpaired one has no interval.
        ratio="" if shown is None else _sure(ratio_text(shown), grade_of(cell) if shown.paired else None),
        more=_more(cell),
    )


def _time(cell: CellRecord) -> str:
    """Write the median, or the mean by that name, with the signs of what is to be known of it."""
    graded, m = p50_grade(cell), cell.measurement
    lead = leading(cell)
    signs = [
        IMPORTED if cell.imported is not None else "",
        NOT_JUDGED if m is not None and m.accuracy.verdict is None and cell.imported is None else "",
        PARTLY if m is not None and m.delegation is not None and m.delegation.status != "full" else "",
        AGAIN if cell.again else "",
    ]
    said = "" if lead is P50 else f"{lead.label} "
    return said + _sure(text.known(lead.read(cell), _known_to(graded)), graded) + "".join(signs)


def _sure(figure: str, graded: Graded | None) -> str:
    return f"{NOISY}{figure}" if graded is not None and graded.grade == "noisy" else figure


def _known_to(graded: Graded | None) -> float | None:
    return None if graded is None else graded.known_to


def _more(cell: CellRecord) -> dict[str, str]:
    """Return the further columns of a cell that has a figure."""
    m = cell.measurement
    if m is None:
        return {}
    graded, times = grade_of(cell), m.latency_ms
    margin = m.accuracy.margin
    delegation = m.delegation
    known_to = _known_to(graded)
    return {
        "±": _close(known_percent(graded)),
        "ops": "" if delegation is None else f"{delegation.delegated_ops}/{delegation.total_ops}",
        "cold": "" if times.init is None else _close(text.short_time(times.init)),
        "warm": "" if times.init_warm is None else _close(text.short_time(times.init_warm)),
        "p90": "" if times.p90 is None else text.known(times.p90, known_to),
        "memory": "" if not cell.memory_peak_bytes else text.byte_count(cell.memory_peak_bytes),
        "margin": "" if margin is None else _close(text.percent(margin)),
        "device": text.short_name(cell.device_name, _DEVICE_CHARACTERS),
    }


def _close(figure: str) -> str:
    """Leave the blank before the unit out: a column of figures is read downwards."""
    return figure.replace(" ", "")


_DEVICE_CHARACTERS = 28
"""Characters of a device's name in the widest table: `AMD EPYC (OpenCL on CPU)` fits."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One delegate on one model: sign, time and ratio, or a `word` in place of them.

    `more` are its further columns by heading; a column that no entry has is not drawn.
    """

    sign: str = ""
    time: str = ""
    ratio: str = ""
    word: str = ""
    more: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Column:
    """A delegate with its heading and the geometric mean of its ratios; an entry for each model or None."""

    heading: str
    entries: tuple[Entry | None, ...]
    mean: str = ""

    @property
    def unsupported(self) -> str:
        """The word `unsupported` with its footnote if it is that of every entry; else empty."""
        words = {entry.word for entry in self.entries if entry is not None}
        word = words.pop() if len(words) == 1 else ""
        return word if word.startswith("unsupported") else ""


@dataclass(frozen=True, slots=True)
class Title:
    """The first line: whose results they are, what of them may be left out, and how many are right."""

    name: str
    about: tuple[str, ...]
    right: str

    @property
    def text(self) -> str:
        """The whole of it but the count."""
        return f"{self.name}  {' · '.join(self.about)}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A table with what stands around it.

    `sentences` stand above, each as clauses of which the last may be left out; `further` are the headings of
    `Entry.more`, the most important first; `legend` explains the signs that occur; `notes` are footnotes.
    """

    title: Title
    models: tuple[str, ...]
    columns: tuple[Column, ...]
    sentences: tuple[tuple[str, ...], ...] = ()
    further: tuple[str, ...] = ()
    legend: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def mean_heading(self) -> str:
        """The heading of the row of means; empty where there is none."""
        return "geometric mean" if any(column.mean for column in self.columns) else ""

    def headings(self, column: Column) -> Sequence[str]:
        """Return the further headings under which any entry of a column has something."""
        return [
            name for name in self.further if any(e is not None and e.more.get(name) for e in column.entries)
        ]


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
    def of(cls, cells: Sequence[CellRecord], baseline: str | None) -> "Placed":
        """Place the cells: the baseline's columns first, then those of the fastest on the whole."""
        baselines = Baselines.among(baseline, cells)
        columns: dict[Key, dict[str, CellRecord]] = {}
        for cell in cells:
            columns.setdefault((cell.delegate, cell.device, cell.level), {})[cell.model] = cell
        models = tuple(dict.fromkeys(cell.model for cell in cells))
        ratios = {cell.cell_id: speedup(cell, baselines.of(cell)) for cell in cells}
        # `rank` asks for means over the ratios, so that the columns are sorted in a second step.
        placed = cls(baseline, models, columns, ratios)
        return replace(placed, columns={key: columns[key] for key in sorted(columns, key=placed.rank)})

    def rank(self, key: Key) -> tuple[bool, int, float]:
        """Sort the baseline first, then by the number of models, then by the mean ratio; none comes last."""
        mean = self.mean(key)
        return key[0] != self.baseline, -len(self.columns[key]), 0.0 if mean is None else -mean.ratio

    @property
    def contenders(self) -> list[Key]:
        """The columns that are compared with the baseline; none where no cell of it is there."""
        has_baseline = any(delegate == self.baseline for delegate, _, _ in self.columns)
        return [key for key in self.columns if has_baseline and key[0] != self.baseline]

    def ratios_of(self, key: Key) -> list[SpeedUp | None]:
        """Return the ratio of each model that a column has."""
        own = self.columns[key]
        return [self.ratios[own[model].cell_id] for model in self.models if model in own]

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
                # By number: as texts, 10 would come before 2.
                name += f" (threads: {', '.join(sorted(counted[key], key=int))})"
            names[key] = name
        return names


def threads(cell: CellRecord) -> str:
    """Return the number of threads of a cell's measurement, as digits; empty if it is not recorded."""
    stated = 0 if cell.measurement is None else stated_count(cell.measurement.settings, "threads")
    return str(stated or "")
