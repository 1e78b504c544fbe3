"""The content of each page as frozen values with their final text; templates only lay them out.

`href` is always relative to the site's root; a template prefixes the path to the root.
A `tone` is a word for the style sheet (bad, quiet, the tones of a speed-up); no meaning depends on it alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.site.drawings import Histogram, RangePlot, Scatter

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Link:
    """Text that leads to a page of the site."""

    text: str
    href: str


@dataclass(frozen=True, slots=True)
class Badge:
    """A word with a sign, and the figures behind it."""

    sign: str
    text: str
    tone: str
    details: Facts = ()


@dataclass(frozen=True, slots=True)
class FallbackRow:
    """Operators that stayed on the CPU for one reason; `option` would change it, or is empty."""

    count: int
    operators: str
    reason: str
    option: str


@dataclass(frozen=True, slots=True)
class DelegationView:
    """The part that a partition delegate took: `text` is delegated/total; `fallbacks` are all of them,
    grouped by reason.
    """

    text: str
    status: str
    partitions: int
    fallbacks: tuple[FallbackRow, ...]


@dataclass(frozen=True, slots=True)
class IntervalBar:
    """A p50 and its interval on the scale of its row, in px of `matrix.BAR_WIDTH`."""

    p50: str
    low: str | None
    high: str | None
    baseline: str | None


@dataclass(frozen=True, slots=True)
class SpeedUpView:
    """A speed-up. `word` says what the colour says; `against` names the baseline.

    `interval` and `blocks` are empty for one that is not paired.
    """

    text: str
    word: str
    sign: str
    tone: str
    against: str
    interval: str
    blocks: str
    value: str
    """The ratio itself, from which the script forms the mean of the rows that are shown."""


@dataclass(frozen=True, slots=True)
class MetricHead:
    """A metric as a heading or a term.

    `unit` is empty where each value carries its own; `direction` says which way is better; `lead` marks the
    figure to read first.
    """

    key: str
    label: str
    unit: str
    direction: str
    help: str
    lead: bool


@dataclass(frozen=True, slots=True)
class Chip:
    """A figure below the latency of a cell; `title` explains it."""

    key: str
    text: str
    title: str


@dataclass(frozen=True, slots=True)
class StatusView:
    """A cell's state as sign and word, and the reason where there is one."""

    sign: str
    word: str
    tone: str
    code: str = ""
    reason: str = ""
    line: str = ""
    """The first line of the reason, short enough for a table."""


@dataclass(frozen=True, slots=True)
class CellView:
    """One model on one delegate and device. `p50` is None where there is no number.

    `void`: why the figures are never compared, or empty. `repeats`: the reason of why stands in a row above
    of the same column.
    """

    href: str
    column: str
    delegate: str
    device: str
    status: StatusView
    p50: str | None
    unit: str
    interval: str | None
    why_no_p50: str
    struck_out: bool
    bar: IntervalBar | None
    speedup: SpeedUpView | None
    is_baseline: bool
    delegation: DelegationView | None
    accuracy: Badge | None
    chips: tuple[Chip, ...]
    grade: Badge | None
    void: str
    reused: bool
    sort_key: str
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A delegate on a device. `note`: where its cells and their baseline ran with unequal threads."""

    delegate: str
    device: str
    device_name: str
    note: str
    is_baseline: bool
    geomean: str
    geomean_over: str


@dataclass(frozen=True, slots=True)
class Row:
    """A model; `cells` follow the columns, None where no cell was requested."""

    model: Link
    detail: str
    cells: tuple[CellView | None, ...]


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """Cells without a counted number that share their state and reason; `cells` are (name, page)."""

    status: StatusView
    reason: str
    cells: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Models x (delegate on device). `baseline` is the delegate's name, or empty; cells show `lead`.

    `sentences` are the headline, `legend` explains the signs that occur: both as on a terminal.
    """

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    baseline: str
    lead: MetricHead
    interval: MetricHead
    without_number: tuple[Unmeasured, ...]
    sentences: tuple[str, ...]
    legend: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CampaignView:
    """The head of a campaign's page: name, time and progress."""

    link: Link
    campaign_id: str
    created: str
    by: str
    level: str
    right: str
    counts: str
    model_count: int
    delegates: str
    labels: Facts
    manifest_sha256: str
    json_href: str
    csv_href: str
    unfinished: int


@dataclass(frozen=True, slots=True)
class EnvironmentView:
    """One environment of a device. `changes` names what differs from the one before."""

    anchor: str
    environment_id: str
    delegates: str
    cell_count: int
    changes: Facts
    conditions: Facts
    versions: Facts
    facts: Facts


@dataclass(frozen=True, slots=True)
class DeviceView:
    """A device and every environment in which its results were measured."""

    device: str
    device_name: str
    environments: tuple[EnvironmentView, ...]


@dataclass(frozen=True, slots=True)
class IndexPage:
    """The home page; `newest` and `matrix` are None before the first campaign."""

    newest: CampaignView | None
    matrix: Matrix | None
    campaigns: tuple[CampaignView, ...]
    devices: tuple[DeviceView, ...]


@dataclass(frozen=True, slots=True)
class CampaignPage:
    """One campaign."""

    campaign: CampaignView
    matrix: Matrix
    devices: tuple[DeviceView, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a table: its text, or a dash with the mark of the footnote that says why.

    `struck`: the number is kept as evidence, and the output it belongs to is wrong. `interval`: that of the
    figure, for the line below it, or a dash with the mark `interval_note`; empty where it never has one.
    """

    text: str
    note: str = ""
    struck: bool = False
    interval: str = ""
    interval_note: str = ""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A delegate on a device; `lead` is its p50, `latencies` and `resources` follow the page's headings."""

    cell: CellView
    lead: Figure
    latencies: tuple[Figure, ...]
    resources: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class OtherMeasurement:
    """A cell that measured the same file: in another campaign, or under another name or level."""

    campaign: Link
    name: str
    cell: CellView
    level: str
    finished: str


@dataclass(frozen=True, slots=True)
class ModelPage:
    """One model in one campaign; `footnotes` are (mark, text).

    `facts` say what the file is, empty where the farm does not have it. `others` are the newest of
    `other_count` measurements of the same file.
    """

    campaign: Link
    name: str
    full_name: str
    sha256: str
    size: str
    level: str
    facts: Facts
    lead: MetricHead
    latency_heads: tuple[MetricHead, ...]
    resource_heads: tuple[MetricHead, ...]
    rows: tuple[ModelRow, ...]
    footnotes: Facts
    plot: RangePlot | None
    others: tuple[OtherMeasurement, ...]
    other_count: int


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One measuring process; the first is number 1."""

    number: int
    cache: str
    init: str
    first: str
    warmup_count: str
    timed_count: str
    least: str
    median: str
    greatest: str
    memory_before: str
    memory_peak: str
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RawBlock:
    """Raw samples of one process in ms: rows of (index of the first, values)."""

    label: str
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt at the cell."""

    number: int
    state: StatusView
    device: str
    started: str
    duration: str
    log_tail: str


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage of the init, of the cold and of the warm process."""

    name: str
    help: str
    cold: Figure
    warm: Figure


@dataclass(frozen=True, slots=True)
class SustainedView:
    """A sustained pass: what it says, and the median of each part in order; no plot of fewer than two."""

    facts: Facts
    plot: Scatter | None


@dataclass(frozen=True, slots=True)
class CellPage:
    """Everything behind one number."""

    cell: CellView
    cell_id: str
    campaign: Link
    model: Link
    device_name: str
    level: str
    finished: str
    original: Link | None
    lead: MetricHead
    latencies: tuple[tuple[MetricHead, Figure], ...]
    resources: tuple[tuple[MetricHead, Figure], ...]
    stages: tuple[StageRow, ...]
    footnotes: Facts
    sample_count: str
    accuracy: Facts
    warnings: tuple[str, ...]
    spread: Facts
    throughput: str | None
    sustained: SustainedView | None
    scatter: Scatter | None
    histogram: Histogram | None
    samples_note: str
    processes: tuple[ProcessRow, ...]
    process_facts: tuple[tuple[str, tuple[str, ...]], ...]
    raw: tuple[RawBlock, ...]
    attempts: tuple[AttemptRow, ...]
    settings: Facts
    spec: Facts
    environment_id: str
    conditions: Facts
    versions: Facts
    facts: Facts
    data_href: str


@dataclass(frozen=True, slots=True)
class MethodPage:
    """The meaning of every figure; `floors` are (percentile, fewest samples) as the newest result has
    them.
    """

    terms: tuple[MetricHead, ...]
    floors: Facts


@dataclass(frozen=True, slots=True)
class Colophon:
    """The foot of every page."""

    built: str
    campaign_count: int
    cell_count: int
