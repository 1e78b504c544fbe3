"""The types of every field of a message: each has a bound, and each text is clean.

A text comes from a model, a driver, a log or a foreign package, and goes into databases, terminals and pages.
`Text`, `Key` and `Output` replace the characters that one of these refuses or obeys, so no field can forget
to. A text that people read is shortened; an id or a count outside its bound makes the message invalid.
"""

import re
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

MAX_TEXT: Final = 8192
"""Most characters of a text that people read, twice the end of a log that goes into a result (4000 bytes).
A longer one is shortened. Larger only fills databases and pages; smaller would cut an OpenCL build log."""
MAX_KEY: Final = 2000
"""Most characters of the name of a fact, setting or input: the longest text of a campaign file, which names
inputs. Real names of facts have at most 40."""
MAX_ID: Final = 200
"""Most characters of an id. The longest real one is an agent's name (63) before a device's; PostgreSQL
indexes ids, and refuses an index entry of more than 2,700 bytes."""
MAX_OUTPUT: Final = 8192
"""Most characters in one piece of a runner's output; longer output is sent in several pieces."""
MAX_FACTS: Final = 256
"""Most entries of a table of facts, settings or reasons. Real ones have at most 30; the rest is room for the
fields of foreign delegates."""
MAX_DEVICES: Final = 256
"""Most devices of one host: 16 accelerators under some drivers each are fewer than 100. Each is a row that
is written at every hello."""
MAX_KINDS: Final = 128
"""Most kinds of delegates on one host, offered or missing; a usual installation has three."""
MAX_ATTEMPTS: Final = 1024
"""Most attempts that an agent reports as not ended: more than its devices, as results wait for receipts."""
MAX_EPOCHS: Final = 4096
"""Most devices whose epoch an agent remembers: it keeps those of devices that were removed, too."""
MAX_FALLBACKS: Final = 8192
"""Most operators of which a delegation report says why they stayed on the CPU. A report with a reason of
100 characters each is 1.4 MB then, below the limit of a result (2 MiB); its counts cover all operators."""
MAX_PROFILED: Final = 2048
"""Most operators, and most kernels, that a profile lists. Some 250 bytes each leave room for the fallbacks in
a result (2 MiB); of more, the slowest are listed, and the profile says how many are left out."""
MAX_WARNINGS: Final = 1024
"""Most warnings of one measurement. Each of up to 40 processes raises a handful."""
MAX_RANK: Final = 32
"""Most dimensions of an input: four times as many as a campaign file may give."""
MAX_INPUTS: Final = 1024
"""Most inputs of a model that a campaign describes. Real models have at most some dozens."""
MAX_CHANGES: Final = 100
"""Changed answers in a result. Chosen: more than anyone reads; some 20 KB. The file of answers has all."""
MAX_STEPS: Final = 10_000
"""Most steps of a sequence of a model that keeps state. Chosen: minutes of sound in steps of 20 ms."""
MAX_INPUT_SETS: Final = 64
"""Most input sets of a cell. Chosen: each is held in memory by every process, and costs a run of the
reference and of each honest draw."""
MAX_OUTPUTS: Final = 64
"""Most outputs of a model of which a result has figures of their own. Real models have at most some dozens;
the verdict covers all of them."""
MAX_ARMS: Final = 64
"""Most cells beside the first one that are measured together by blocks. A campaign has some dozen delegates
at most; those beyond the bound are measured afterwards, in blocks with the baseline again."""
MAX_BLOCKS: Final = 40
"""Most blocks of a cell, those included that were added to its result later: `publish` measures as many. Each
costs the start of a process of every arm."""
MAX_ROUNDS: Final = 100
"""Most rounds of a block, and with those that are repeated at most half as many again."""
MOST_DERIVED_ROUNDS: Final = 15
"""Most rounds of a block where the measurement chooses them. Chosen: twice as many as it begins with; a block
that is worth still more has a start of minutes, which is better spent on another one."""
MAX_SLICE_RUNS: Final = 1000
"""Most invokes that a slice has at least; a faster model fills its seconds with more."""
MAX_SLICE_SECONDS: Final = 10.0
"""Most seconds of a slice. The state of a machine changes within two of them, which longer slices do not
follow."""
SHORTEST_RUN_S: Final = 50e-6
"""Seconds of a run by which the runs of a slice, and of a warm-up, are bounded: a faster model makes as many
as fit of this length, and ends sooner. Chosen: 2,000 in a slice of 0.1 s tell its median, and the raw samples
of the level `publish` stay below `FARM_SAMPLES_BYTES`."""
MAX_SAMPLES: Final = 100_000_000
"""Most runs of one process, all of which it reports. A campaign file asks for at most 60 million timed ones:
300 slices of 10 s, of runs of 50 us."""

MAX_SLICES: Final = 4096
"""Most parts of a sustained pass: a day, the most that a campaign file asks for, has 2,880 half minutes."""

MAX_IN_FLIGHT: Final = 64
"""Most runs in flight of a throughput pass, each of which has memory of its own for inputs and outputs.
Chosen: a device that is kept busy by so many gains nothing by more."""

MAX_PREPROCESS_MS: Final = 1000.0
"""Most milliseconds of a processor that a frame of a pipeline takes beforehand. Chosen: at a frame a second,
nothing is left of a pipeline."""

MAX_INTEGER: Final = 2**63 - 1
"""Largest whole number, and largest size of a negative one: databases store them in 64 bits."""
MAX_COUNT: Final = 2**62
"""Largest count: the sum of two still fits into 64 bits. Real ones, nanoseconds and bytes, are below
2**50."""
LEAST_FIGURE: Final = 1e-30
"""Least size of a time, a rate or a ratio that is not 0. Real ones are above 1e-12; smaller ones divide to
infinity."""
MAX_FIGURE: Final = 1e30
"""Largest size of such a figure. Real ones are below 1e18; larger ones multiply to infinity."""
MAX_LOGARITHM: Final = 69.0
"""Largest size of the natural logarithm of a ratio: that of `MAX_FIGURE`. Real ones are below 10."""
MAX_SMALL: Final = 2**31 - 1
"""Largest whole number of a column of 32 bits, and of a dimension in a model file."""
MAX_SEEN_EPOCH: Final = 2**30
"""Largest epoch that an agent may claim to have seen. The farm continues from it, one per attempt, in 32
bits: with a larger one an agent could bring its device close to the end, where no attempt can begin."""

_SHORTENED: Final = "…"
_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""NUL, which PostgreSQL refuses; lone surrogates, which UTF-8 cannot encode; and the other control
characters, which terminals obey. Tab, line feed and carriage return stay."""


def clean(text: str) -> str:
    """Replace each character that no text may hold by U+FFFD, one for one: lengths and offsets stay."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def shorten(text: str, limit: int = MAX_TEXT) -> str:
    """Return a text of at most `limit` characters; a longer one ends with `…`."""
    return text if len(text) <= limit else text[: limit - len(_SHORTENED)] + _SHORTENED


def _cleaned(value: object) -> object:
    return clean(value) if isinstance(value, str) else value


def _shortened(value: object) -> object:
    return shorten(clean(value)) if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_shortened), StringConstraints(max_length=MAX_TEXT)]
"""A text for people: cleaned, and shortened where it is too long."""
Key = Annotated[str, BeforeValidator(_cleaned), StringConstraints(max_length=MAX_KEY)]
"""The name of an entry: cleaned. A longer one is refused, because two shortened ones could be the same."""
Output = Annotated[str, BeforeValidator(_cleaned), StringConstraints(max_length=MAX_OUTPUT)]
"""A piece of output: cleaned. A longer one is refused, because its offsets would be wrong."""
Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:/@+-]+$", min_length=1, max_length=MAX_ID)]
"""The name of an agent, device, attempt, cell or delegate: no character that needs quoting anywhere."""
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", max_length=64)]


def is_figure(value: float) -> bool:
    """Whether a number can be a time, a rate or a ratio."""
    return not value or LEAST_FIGURE <= abs(value) <= MAX_FIGURE


def _figure(value: float) -> float:
    if not is_figure(value):
        raise ValueError(f"expected 0, or a size from {LEAST_FIGURE:g} to {MAX_FIGURE:g}")
    return value


def _not_negative(value: float) -> float:
    if value < 0:
        raise ValueError("expected a number that is not negative")
    return value


def _logarithm(value: float) -> float:
    if abs(value) > MAX_LOGARITHM:
        raise ValueError(f"expected a logarithm of at most {MAX_LOGARITHM:g}")
    return value


Figure = Annotated[float, AfterValidator(_figure)]
"""A time, a rate or a ratio: nothing that is computed from two of them overflows."""
NonNegative = Annotated[Figure, AfterValidator(_not_negative)]
"""A time, or an end of its interval or of a ratio's."""
Logarithm = Annotated[float, AfterValidator(_logarithm)]
"""The natural logarithm of a ratio."""
Facts = Annotated[dict[Key, Text], Field(max_length=MAX_FACTS)]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Integer = Annotated[int, Field(ge=-MAX_INTEGER, le=MAX_INTEGER)]
Small = Annotated[int, Field(ge=0, le=MAX_SMALL)]
SeenEpoch = Annotated[int, Field(ge=0, le=MAX_SEEN_EPOCH)]


class Wire(BaseModel):
    """Base of every message part: unknown fields are errors, instances are immutable."""

    # A process builds the validators of what it reads and writes alone: all of them take a fifth of a second.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    @classmethod
    def like(cls, source: object, **others: Any) -> Self:
        """Return one with the fields that `source` has by the same names, and `others`."""
        alike = {name: getattr(source, name) for name in cls.model_fields if hasattr(source, name)}
        return cls(**{**alike, **others})
