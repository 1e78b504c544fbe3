"""Defines the arguments and exit codes that several verbs share, and opens the farm for them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from agent.wire.private_folder import keep_new_files_private
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.farm.remote.farm import AnyFarm

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show every cell with its intervals, grade and reasons.")
]
CellWords = Annotated[
    list[str],
    typer.Argument(
        metavar="CELL",
        help="A cell: the beginning of its id, or words of its model, delegate, device, level or campaign.",
    ),
]
CampaignRef = Annotated[
    str,
    typer.Argument(
        help="A campaign: its id, its name or a part of one, or label:WORD; NAME~1: the one before."
    ),
]
Ref = Annotated[str, typer.Argument(help="A campaign or cell: its id, or the beginning of it.")]

OK = 0
"""Exit code: everything asked for was done."""

SOME_FAILED = 1
"""Exit code: the verb did its work and reports a failure; also the code of `FarmError`."""

REGRESSION = 3
"""Exit code where a cell exceeds a budget, or `farm compare --fail-on regression` found a regression."""

UNDECIDED = 5
"""Exit code where a budget or a comparison that may fail a build is neither met nor exceeded."""

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as shells count."""


def settings() -> tuple[FarmHome, LabConfig]:
    """Return the home and the configuration of the environment and `farm.toml`. Raises `UsageError`."""
    home = FarmHome.from_environment()
    return home, LabConfig.load(home)


def open_farm() -> AnyFarm:
    """Open the farm under `$FARM_HOME`, with the broker and the database that the configuration names, or the
    one at `$FARM_URL`.

    From here on, what this process creates is for its user alone.
    """
    from orchestrator.farm.remote.farm import opened  # noqa: PLC0415  # several verbs need no farm

    keep_new_files_private()
    home, lab = settings()
    return opened(home, lab)


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def read_age(text: str, option: str) -> timedelta:
    """Read hours, days or weeks. Raises `UsageError`, which names the option."""
    return _read(text, option, r"([1-9]\d{0,5})([hdw])", "hours, days or weeks: 12h, 90d, 8w")


def read_length(text: str, option: str) -> timedelta:
    """Read seconds, minutes, hours or days. Raises `UsageError`, which names the option."""
    return _read(text, option, r"(\d{1,6})([smhd])", "seconds, minutes, hours or days: 30s, 30m, 2h, 1d")


def _read(text: str, option: str, form: str, expected: str) -> timedelta:
    # Both forms have six digits at most: no unit of these overflows a `timedelta`.
    found = re.fullmatch(form, text)
    if found is None:
        raise UsageError(f"{option} {text}: expected {expected}")
    return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
