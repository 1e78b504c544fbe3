"""Run numbered cases in a process with little memory and a clock; its death or silence is a finding."""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

Case = Callable[[int], None]
_PATIENCE = 20


@dataclass(frozen=True)
class Limits:
    """`address_bytes`: beyond what the process has when it starts. `seconds`: of processor time for one case.

    A case that only waits is ended after `_PATIENCE` times as long: others may hold the processor.
    """

    address_bytes: int
    seconds: float


@dataclass(frozen=True)
class Finding:
    """A case that did something else than end well or refuse cleanly."""

    number: int
    what: str


def run_cases(
    make: Callable[[], Case], numbers: Sequence[int], limits: Limits, until: float
) -> tuple[int, list[Finding]]:
    """Run the cases until `until` (monotonic seconds). Returns how many ran, and the findings.

    `make` builds the case in the child. A child that dies or overruns is replaced behind the bad case.
    """
    context = multiprocessing.get_context("fork")
    findings: list[Finding] = []
    done = 0
    while done < len(numbers) and time.monotonic() < until:
        mine, theirs = context.Pipe()
        child = context.Process(target=_serve, args=(theirs, make, numbers[done:], limits), daemon=True)
        child.start()
        theirs.close()
        done += _follow(mine, child, numbers[done:], limits, until, findings)
        child.kill()
        child.join()
        mine.close()
    return done, findings


def _follow(
    pipe: Connection,
    child: multiprocessing.process.BaseProcess,
    numbers: Sequence[int],
    limits: Limits,
    until: float,
    findings: list[Finding],
) -> int:
    """Count the cases of the child that have ended, including the bad one at its end."""
    ready = pipe.poll(120) and _received(pipe) == "ready"
    if not ready:
        raise RuntimeError("the process that runs the cases did not start")
    for count, number in enumerate(numbers):
        if time.monotonic() > until:
            return count
        if not _answers(pipe, child, limits.seconds):
            findings.append(Finding(number, f"took longer than {limits.seconds} s"))
            return count + 1
        word = _received(pipe)
        if word is None:
            child.join(5)
            findings.append(Finding(number, f"the process died with {child.exitcode}"))
            return count + 1
        if word:
            findings.append(Finding(number, word))
    return len(numbers)


def _answers(pipe: Connection, child: multiprocessing.process.BaseProcess, seconds: float) -> bool:
    """Return False if the case took too long; True if there is an answer, or the process died."""
    begun, waited = _processor_seconds(child), 0.0
    while not pipe.poll(seconds):
        waited += seconds
        if _processor_seconds(child) - begun >= seconds or waited >= _PATIENCE * seconds:
            return False
    return True


def _processor_seconds(child: multiprocessing.process.BaseProcess) -> float:
    fields = Path(f"/proc/{child.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _received(pipe: Connection) -> str | None:
    try:
        return str(pipe.recv())
    except (EOFError, OSError):
        return None


def _serve(pipe: Connection, make: Callable[[], Case], numbers: Sequence[int], limits: Limits) -> None:
    case = make()
    size = _address_bytes() + limits.address_bytes
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pipe.send("ready")
    for number in numbers:
        try:
            case(number)
            word = ""
        except MemoryError:
            word = f"needed more than {limits.address_bytes >> 20} MiB"
        except Exception as error:  # noqa: BLE001  # whatever it is, it is the finding
            word = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        pipe.send(word)


def _address_bytes() -> int:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[0]) * resource.getpagesize()
