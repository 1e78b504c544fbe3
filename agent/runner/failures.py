"""Translates an error of a process into a status and a reason for the attempt's cell."""

from typing import Any

from agent.attempt.files import AttemptFile, Failure
from agent.wire.bounded import MAX_FALLBACKS
from agent.wire.measurement import Delegation, Fallback
from agent.wire.messages import Reason, ReasonCode, Status
from runtime import errors
from runtime.common.litert_errors import cause_of
from runtime.measure.inputs import InputSpecNeededError
from runtime.model.schema import BuiltinOperator


def failure_of(error: Exception, attempt: AttemptFile) -> Failure:
    """Return the status and the reason that an error gives the attempt's cell.

    The store's paths in the error's text mean nothing to a user: they become the model's id, and words.
    """
    kind = attempt.job.delegate_kind
    text = cause_of(str(error) or type(error).__name__).replace(attempt.model_path, attempt.job.model_id)
    if attempt.data_path is not None:
        text = text.replace(attempt.data_path, "labelled data")
    delegation = delegation_of(getattr(error, "delegation", None))
    if delegation is not None and delegation.fallbacks:
        text = _with_fallbacks(error, text, kind, delegation)
    status, code = _meaning(error, delegation)
    return Failure(status=status, reason=Reason(code=code, text=text), delegation=delegation)


def _with_fallbacks(error: Exception, text: str, kind: str, delegation: Delegation) -> str:
    """Return the cause, then how many operators stay on the CPU: the report has all."""
    left = f"{delegation.total_ops - delegation.delegated_ops} of {delegation.total_ops} operators"
    if isinstance(error, errors.UnsupportedOperatorError):
        return f"{text}; {kind} leaves {left} to the CPU"
    # What nobody but its vendor knows is the cause; other operators often stay for its sake.
    fallbacks = delegation.fallbacks
    cause = next((one for one in fallbacks if one.op not in BuiltinOperator.__members__), fallbacks[0])
    named = f"{cause.op} (operator {cause.index}): {cause.reason}; {kind} leaves {left} to the CPU"
    # Its own text is LiteRT's report of every operator.
    if isinstance(error, errors.FallbackForbiddenError):
        return f"{named}, which require_full_delegation forbids"
    return named if delegation.delegated_ops == 0 else f"{named}; {text}"


def _meaning(error: Exception, delegation: Delegation | None) -> tuple[Status, ReasonCode]:
    if delegation is not None and delegation.delegated_ops == 0:
        return Status.UNSUPPORTED, ReasonCode.NOT_DELEGATED
    if isinstance(error, errors.DelegateError) and isinstance(error.__cause__, ImportError):
        return Status.UNSUPPORTED, ReasonCode.DELEGATE_MISSING
    for kind, status, code in _MEANINGS:
        if isinstance(error, kind):
            return status, code
    return Status.FAILED, ReasonCode.RUNNER_ERROR


# The first that fits counts: a subclass stands in front of its base.
_MEANINGS: tuple[tuple[type[Exception], Status, ReasonCode], ...] = (
    (MemoryError, Status.FAILED, ReasonCode.OUT_OF_MEMORY),
    (errors.OutOfMemoryError, Status.FAILED, ReasonCode.OUT_OF_MEMORY),
    (errors.UnsupportedOperatorError, Status.UNSUPPORTED, ReasonCode.UNSUPPORTED_OPERATOR),
    (errors.DelegateMissingError, Status.UNSUPPORTED, ReasonCode.DELEGATE_MISSING),
    (errors.FallbackForbiddenError, Status.UNSUPPORTED, ReasonCode.NOT_DELEGATED),
    (errors.UnsupportedPrecisionError, Status.UNSUPPORTED, ReasonCode.UNSUPPORTED_PRECISION),
    (InputSpecNeededError, Status.UNSUPPORTED, ReasonCode.NEEDS_INPUT_SPEC),
    (errors.MisfitError, Status.UNSUPPORTED, ReasonCode.LABELLED_DATA),
    (errors.DataError, Status.FAILED, ReasonCode.LABELLED_DATA),
    (errors.ModelFormatError, Status.FAILED, ReasonCode.MODEL_FORMAT),
    (errors.DeadlineError, Status.FAILED, ReasonCode.TIMEOUT),
    (errors.NoDeviceError, Status.UNSUPPORTED, ReasonCode.NO_DEVICE),
    (errors.DeviceMemoryError, Status.FAILED, ReasonCode.OUT_OF_MEMORY),
    (errors.DeviceError, Status.FAILED, ReasonCode.DEVICE_LOST),
)


def delegation_of(report: Any | None) -> Delegation | None:
    """Convert the interpreter's delegation report to its form on the wire."""
    if report is None:
        return None
    return Delegation.like(report, fallbacks=tuple(map(Fallback.like, report.fallbacks[:MAX_FALLBACKS])))
