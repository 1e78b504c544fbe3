"""`farm show --why`: why a cell waits, or how far it is."""

from collections.abc import Iterator

from orchestrator.policy.why import Why


def sentences(answer: Why) -> Iterator[str]:
    """Yield what blocks a cell, its clocks, and when it starts or ends.

    The queue clock and the job clock are separate: time in the queue counts towards no timeout of attempts.
    """
    yield f"cell {answer.cell_id} is {answer.state}, in the queue of {answer.line}"
    for text in answer.blocks:
        yield f"  {text}"
    if answer.queue_s is not None:
        left = answer.queue_left_s
        limit = "counts towards no limit" if left is None else f"it fails in {_clock(left)}: limits.queue"
        yield f"queue clock: {_clock(answer.queue_s)} ({limit})"
    if answer.job_s is not None:
        yield f"job clock: {_clock(answer.job_s)}"
    if answer.lease is not None:
        yield f"lease: attempt {answer.lease}"
    if answer.eta_s is not None:
        what = "starts" if answer.state == "queued" else "ends"
        yield f"{what} in about {_clock(answer.eta_s)}"
    elif answer.state == "queued":
        yield "starts once nothing blocks it"


def _clock(seconds: float) -> str:
    whole = int(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
