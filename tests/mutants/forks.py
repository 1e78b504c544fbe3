"""`python -m tests.mutants.forks`: runs pytest again and again, each time in a fork of this process.

It has imported the packages that the tests need, and nothing of the tree: a fork reads the changed file, and
starts in a fraction of the time of a new interpreter.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Final

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in tests/conftest.py: before numpy is imported

import hypothesis  # as above
import pytest

HANGS: Final = -1
"""Exit code that stands for a run that was killed at its limit."""

_POLL_S: Final = 0.02
"""Seconds between two looks at a running fork; it only bounds the delay at its end."""
_PACKAGES: Final = (
    "alembic", "anyio", "celery", "cryptography.hazmat.primitives.asymmetric.ed25519", "httpx",
    "hypothesis.strategies", "kombu", "numpy", "psycopg", "pydantic", "redis", "rich", "sqlalchemy",
    "sqlmodel", "starlette.applications", "typer", "uvicorn", "xdist", "yaml",
)  # fmt: skip


def main() -> None:
    """Answer each line of standard input, {arguments, output, limit_s}, with an exit code of pytest."""
    for name in _PACKAGES:
        import_module(name)
    # One failing example is enough: none is made smaller, and the same ones are tried each time.
    found = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutants", phases=found, derandomize=True, database=None)
    hypothesis.settings.load_profile("mutants")
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(request["arguments"], Path(request["output"]))
        sys.stdout.write(f"{_code(child, time.monotonic() + request['limit_s'])}\n")
        sys.stdout.flush()


def _run(arguments: list[str], output: Path) -> None:
    """Become a run of pytest that leads a session, so that it can be killed with what it has started."""
    os.setsid()
    with output.open("wb") as to, Path(os.devnull).open("rb") as nothing:
        for source, number in ((nothing, 0), (to, 1), (to, 2)):
            os.dup2(source.fileno(), number)
    code = pytest.main(arguments)
    sys.stdout.flush()
    os._exit(int(code))


def _code(child: int, until_s: float) -> int:
    while time.monotonic() < until_s:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_POLL_S)
    os.killpg(child, 9)
    os.waitpid(child, 0)
    return HANGS


if __name__ == "__main__":
    main()
