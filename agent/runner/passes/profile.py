"""Runs the process that times each kernel and operator by itself, after everything is timed."""

from pathlib import Path
from typing import Final, TypeVar

from agent.attempt.files import AttemptFile, PassReport
from agent.runner.advice import with_times
from agent.runner.opening import as_timed
from agent.runner.passes.process_frame import FiguresPass, Found, Tell
from agent.wire.bounded import MAX_PROFILED, Wire
from agent.wire.passes import PROFILE_S
from agent.wire.profile import MeasuredPeaks, Profile, ProfileDetail, ProfiledOperator, ProfiledRow
from runtime.common.profile import ModelProfile, OperatorTime, ProfileRow
from runtime.errors import DelegateError
from runtime.measure.profile import profile_model

_ROUNDS: Final = 10
"""Rounds of a profile, as of `farm model profile`: a few disturbed ones do not move a median of ten."""

T = TypeVar("T", OperatorTime, ProfileRow)


class ProfileReport(PassReport):
    """The report of the process that timed each kernel and operator by itself."""

    name = "profile"
    who = "the profiling process"
    found: Profile | None = None


def _profiled(detail: ProfileDetail, attempt: AttemptFile, folder: Path, tell: Tell) -> ProfileReport:
    tell("profile")
    subject = as_timed(attempt, folder)
    try:
        found = profile_model(subject, rounds=_ROUNDS, seconds=PROFILE_S)
    except DelegateError as error:
        return ProfileReport(found=Profile(detail=detail, missing={"profile": str(error)}))
    return ProfileReport(found=wire_profile(found.profile, detail))


def wire_profile(found: ModelProfile, detail: ProfileDetail) -> Profile:
    """Return a profile as a result holds it: of too many operators or rows, the slowest."""
    ran = [one for one in found.operators if one.place != "none"]
    operators, rows = _slowest(ran), _slowest(found.rows if detail == "kernels" else ())
    left = [one for one in ran if one not in operators]
    return Profile.like(
        found,
        detail=detail,
        operators=tuple(map(ProfiledOperator.like, operators)),
        rows=tuple(map(ProfiledRow.like, rows)),
        peaks=None if found.peaks is None else MeasuredPeaks.like(found.peaks),
        left_out=len(left),
        left_out_ns=sum(one.time_ns for one in left),
        missing={} if found.peaks is not None else {"peaks": found.no_peaks},
    )


def _slowest(ones: list[T] | tuple[T, ...]) -> list[T]:
    """Return the slowest that a profile may list, in their own order."""
    if len(ones) <= MAX_PROFILED:
        return list(ones)
    least = sorted((one.time_ns for one in ones), reverse=True)[MAX_PROFILED - 1]
    # Several may take the least of these times, and be too many together.
    return [one for one in ones if one.time_ns >= least][:MAX_PROFILED]


def profile_of(report: ProfileReport, detail: ProfileDetail) -> Profile:
    """Build the pass's result: the profile, or why there is none."""
    if report.found is not None and report.failure is None:
        return report.found
    return Profile(detail=detail, missing={"profile": report.why})


def _figures(found: Found[ProfileReport]) -> dict[str, Wire | None]:
    profile = profile_of(found.report, found.asked)
    return {"profile": profile, "advice": with_times(found.measurement.advice, profile)}


PASS = FiguresPass(ProfileReport, _profiled, _figures, even_if_wrong=True)
