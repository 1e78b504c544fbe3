"""The advice of a result in words: how the model suits its delegate, and what would have to be changed."""

from collections.abc import Iterator

from agent.wire.advice import Advice, AdvicePiece

_NAMED = 8
"""Operators of a piece of advice that are named; the JSON has more. Chosen to fit a line."""


def advice_lines(advice: Advice) -> Iterator[str]:
    """Yield the verdict, then each rule that the model breaks."""
    yield advice_verdict(advice)
    yield from map(_piece, advice.pieces)


def advice_verdict(advice: Advice) -> str:
    """Return the verdict with the shares of the CPU."""
    shares = f"{advice.cpu_macs_share:.0%} of the products"
    if advice.cpu_time_share is not None:
        shares += f" and {advice.cpu_time_share:.0%} of the time"
    return f"{advice.text}; {shares} on the CPU"


def _piece(piece: AdvicePiece) -> str:
    named = ", ".join(map(str, piece.operators[:_NAMED]))
    more = f" and {len(piece.operators) - _NAMED} more" if len(piece.operators) > _NAMED else ""
    where = f" (operators {named}{more})" if named else ""
    took = "" if piece.ms is None or not piece.operators else f"; they take {piece.ms:.3f} ms"
    return f"{piece.rule}: {piece.finding}{where}; {piece.gain}{took}"
