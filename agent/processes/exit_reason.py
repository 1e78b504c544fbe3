"""The reason of a process's exit, from its exit code and its log (pure)."""

import re
import signal

from agent.wire.messages import Reason, ReasonCode
from runtime.common.litert_errors import cause_of

_OUT_OF_MEMORY = re.compile(r"bad_alloc|MemoryError|[Cc]annot allocate memory|[Oo]ut of (host )?memory")
_SMALLER = "measure a smaller model or input"
_KILLED_HINT = f"unless a person did, most likely the kernel did, out of memory; {_SMALLER}"


def describe_exit(returncode: int) -> str:
    """Return `exit code 3`, or the signal's name."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return signal.Signals(-returncode).name
    # Most real-time signals have no name in Python.
    except ValueError:
        return f"signal {-returncode}"


def told(returncode: int, log: str) -> str:
    """Return how a process ended, with the last line of its log if there is one: `exit code 3: no luck`."""
    return ": ".join(filter(None, (describe_exit(returncode), last_line(log))))


def exit_reason(returncode: int, who: str, log: str, *, oom_killed: bool = False) -> Reason:
    """Return why `who` ended without a result and without a request to end. `log`: the end of its output.

    `oom_killed`: the kernel killed a process, out of memory, meanwhile.
    """
    ended = describe_exit(returncode)
    if returncode == -signal.SIGKILL and oom_killed:
        text = f"{who} was killed by the kernel, out of memory: {_SMALLER}"
        return Reason(code=ReasonCode.OUT_OF_MEMORY, text=text)
    if returncode == -signal.SIGKILL:
        text = f"{who} was killed by SIGKILL, which the farm did not send: {_KILLED_HINT}"
        return Reason(code=ReasonCode.RUNNER_KILLED, text=text)
    # Before the signals: a `std::bad_alloc` that nobody catches ends a process by SIGABRT.
    if returncode != 0 and _OUT_OF_MEMORY.search(log):
        return Reason(code=ReasonCode.OUT_OF_MEMORY, text=f"{who} ran out of memory ({ended})")
    if returncode < 0:
        return Reason(
            code=ReasonCode.CRASH, text=f"{who} crashed with {ended}; the log's end is in `farm show`"
        )
    if returncode == 0:
        return Reason(code=ReasonCode.RUNNER_ERROR, text=f"{who} ended without a result")
    last = cause_of(last_line(log))
    text = f"{last} ({who}, {ended})" if last else f"{who} ended with {ended}"
    return Reason(code=ReasonCode.RUNNER_ERROR, text=text)


def last_line(log: str) -> str:
    """Return the last line that is not blank, at most 300 characters of it."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
