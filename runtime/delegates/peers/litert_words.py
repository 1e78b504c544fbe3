"""Reads LiteRT's messages: plain text, whose layout is that of its 2.x versions."""

import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from runtime.common.litert_errors import cause_of
from runtime.delegates.partition import DelegationReport, Fallback, Status
from runtime.errors import FarmRuntimeError, UnsupportedOperatorError
from runtime.model.reader import load_model

_ERRORS = 2
"""The file descriptor of the standard error output (POSIX)."""


class Spoken:
    """The text that was written in a block; empty until the block has ended."""

    text: str = ""


@contextmanager
def spoken() -> Iterator[Spoken]:
    """Keep the block's text on the standard error output, which is written there all the same.

    Where the output is a file the text is read back from it, so that the last words of a process that a
    library aborts stay in that file. Elsewhere the text passes through a file of its own.
    """
    found = Spoken()
    sys.stderr.flush()
    log = _log_file()
    if log is None:
        with _diverted(found):
            yield found
        return
    start = os.fstat(log).st_size
    try:
        yield found
    finally:
        sys.stderr.flush()
        found.text = os.pread(log, os.fstat(log).st_size - start, start).decode(errors="replace")
        os.close(log)


def _log_file() -> int | None:
    """Open the standard error output for reading; None if it is not a file that may be read."""
    with suppress(OSError):
        if stat.S_ISREG(os.fstat(_ERRORS).st_mode):
            # Opened anew, because the descriptor itself may be open for writing only.
            return os.open(f"/proc/self/fd/{_ERRORS}", os.O_RDONLY)
    return None


@contextmanager
def _diverted(found: Spoken) -> Iterator[None]:
    with tempfile.TemporaryFile() as file:
        try:
            kept = os.dup(_ERRORS)
        except OSError:
            yield  # a process without a standard error output hears nothing
            return
        os.dup2(file.fileno(), _ERRORS)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, _ERRORS)
            file.seek(0)
            content = file.read()
            found.text = content.decode(errors="replace")
            # The reader of the output may be gone.
            with suppress(OSError), os.fdopen(kept, "wb") as output:
                output.write(content)


_ADAPTER = re.compile(r"Selected adapter: (.+)")
_NO_GPU = re.compile(r"No adapters found|GPU accelerator could not be loaded")
# Errors of LiteRT (`ERROR: [file:line] text`) and warnings of its WebGPU implementation (`Warning: text`).
_PROBLEM = re.compile(r"^(?:ERROR: \[[^\]]*\]|Warning:) +(\S.*)$", re.MULTILINE)
# The text of an exception: places in LiteRT's sources, and perhaps a reason among them.
_REASON = re.compile(r"^└ (?!ERROR: \[)(\S.*)$", re.MULTILINE)
_LACKING = re.compile(r"unresolved custom op|Didn't find op|not (?:yet )?supported", re.IGNORECASE)
_LIMIT_WARNING: Final = "artificially reduced"
_HEADER: Final = "Following operations are not supported by GPU delegate:"
_KIND = re.compile(r"^([A-Za-z0-9_]+): (.+)$")
_COUNTS = re.compile(r"(\d+|No) operations will run on the GPU, and (?:the remaining|all) (\d+) operations")


def adapter_of(said: str) -> str | None:
    """Return the adapter that LiteRT chose, in its words."""
    found = _ADAPTER.search(said)
    return found[1].strip() if found else None


def found_no_gpu(said: str) -> bool:
    """Whether LiteRT gave up for want of a GPU."""
    return _NO_GPU.search(said) is not None


def problems(said: str, error: str) -> list[str]:
    """Return the problems in LiteRT's messages and its exception, each once, in its order."""
    matches = (*_PROBLEM.finditer(said), *_REASON.finditer(error))
    found = (" ".join(match[1].split()) for match in matches)
    return list(dict.fromkeys(text for text in found if _LIMIT_WARNING not in text))


def failure(runtime: str, words: str, otherwise: type[FarmRuntimeError]) -> FarmRuntimeError:
    """Return the error that LiteRT's words stand for: what it lacks for the model, or `otherwise`."""
    kind = UnsupportedOperatorError if _LACKING.search(words) else otherwise
    return kind(f"{runtime}: {cause_of(words)}")


def report_of(said: str, path: str) -> DelegationReport | None:
    """LiteRT's report of operators that stay on the CPU; None where it made none.

    LiteRT names kinds of operators with a reason each, and counts. The operators of these kinds are looked up
    in the file; the others on the CPU are supported, but lie outside the part that LiteRT kept.
    """
    _, header, rest = said.partition(_HEADER)
    counts = _COUNTS.search(rest)
    if not header or counts is None:
        return None
    lines = rest[: counts.start()].splitlines()
    kinds = {match[1]: match[2] for line in lines if (match := _KIND.match(line)) is not None}
    on_gpu, left = (int(text) if text.isdecimal() else 0 for text in counts.groups())
    operators = load_model(path).subgraphs[0].operators
    fallbacks = tuple(
        Fallback(operator.index, operator.name, kinds[operator.name])
        for operator in operators
        if operator.name in kinds
    )
    status: Status = "partial" if on_gpu else "none"
    return DelegationReport(status, on_gpu, on_gpu + left, int(on_gpu > 0), fallbacks, title="GPU")
