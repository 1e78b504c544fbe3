"""The advice in a result: how a model suits its delegate, and what of it would have to be changed."""

from typing import Final, Literal

from pydantic import Field

from agent.wire.bounded import Count, Text, Wire

MAX_ADVICE: Final = 64
"""Most pieces of advice of a model: some dozen rules, of which one names each count of channels."""

MAX_ADVISED: Final = 512
"""Most operators that a piece names; its finding counts all of them."""


class AdvicePiece(Wire):
    """A rule of LiteRT's documents that a model breaks: the operators, what changing them saves, who says so.

    `bytes`: of a run; `ms`: what these operators take together, null where nothing was profiled.
    """

    rule: Text
    operators: tuple[Count, ...] = Field(default=(), max_length=MAX_ADVISED)
    finding: Text
    gain: Text
    source: Text
    bytes: Count = 0
    ms: float | None = None


class Advice(Wire):
    """A verdict on a model and a delegate, from the plan of its run.

    `text`: the verdict in words. `cpu_macs_share`: the share of the products that stays on the CPU;
    `cpu_time_share`: of the time, null where nothing was profiled. `to_change`: how many operators the pieces
    name or the CPU runs.
    """

    verdict: Literal["suits", "change", "not"]
    text: Text
    to_change: Count
    cpu_macs_share: float = Field(ge=0, le=1)
    cpu_time_share: float | None = Field(default=None, ge=0, le=1)
    pieces: tuple[AdvicePiece, ...] = Field(default=(), max_length=MAX_ADVICE)


class Explained(Wire):
    """A delegate's answer on a model before a measurement: the operators it would take, or why none."""

    delegated_ops: Count = 0
    total_ops: Count = 0
    reasons: dict[Text, Count] = Field(default_factory=dict)
    obstacle: Text = ""
    advice: Advice | None = None
