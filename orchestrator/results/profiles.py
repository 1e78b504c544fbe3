"""A cell's profile in its forms: those of `farm model profile`, from what the result holds."""

from collections.abc import Iterator

from agent.wire.profile import Advice, AdvicePiece, Profile
from orchestrator.results.records import CellRecord
from runtime.common.profile import ModelProfile, OperatorTime, Peaks, ProfileRow


def profile_lines(_: CellRecord, found: Profile) -> Iterator[tuple[str, str]]:
    """Yield the slowest operators in a line, or why there is no profile."""
    if not found.operators:
        yield "profile", f"none: {_why_none(found)}"
        return
    slowest = sorted(model_profile(found).operators, key=lambda one: -one.time_ns)[:3]
    named = ", ".join(f"{one.index} {one.name} {one.share:.0%}" for one in slowest)
    yield "profile", f"{found.detail}, {found.rounds} rounds; slowest: {named}"


def profile_of(cell: CellRecord) -> ModelProfile | str:
    """Return a cell's profile, or why it has none."""
    found = None if cell.measurement is None else cell.measurement.profile
    if found is None:
        return "it was not asked for; write `measure: {profile: kernels}` in models.yaml"
    return model_profile(found) if found.operators else _why_none(found)


def profile_heading(cell: CellRecord) -> str:
    """Return what a profile is of."""
    return f"{cell.model} on {cell.delegate}, {cell.device_name or cell.device}"


def model_profile(found: Profile) -> ModelProfile:
    """Return the profile of a result as its forms read it; shares are of all that ran."""
    # Not 0, by which a profile without operators would be divided.
    total = (sum(one.time_ns for one in found.operators) + found.left_out_ns) or 1.0
    return ModelProfile(
        found.rounds,
        found.run_ns,
        found.sums_ns,
        tuple(ProfileRow(**row.model_dump(), share=row.time_ns / total) for row in found.rows),
        tuple(OperatorTime(**one.model_dump(), share=one.time_ns / total) for one in found.operators),
        found.stages_ns,
        None if found.peaks is None else Peaks(**found.peaks.model_dump()),
        found.missing.get("peaks", ""),
    )


def _why_none(found: Profile) -> str:
    return found.missing.get("profile", "no operator ran by itself")


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
