"""Defines a verb of `farm`, its function with its examples, and the arguments that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from orchestrator.config.home import FarmHome
    from orchestrator.config.lab import LabConfig
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


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: the function returns the exit code; each example is a whole command line."""

    name: str
    run: Callable[..., int]
    examples: tuple[str, ...]

    @property
    def epilog(self) -> str:
        """The examples as the end of `farm VERB --help`; `\\b` keeps the lines apart."""
        return "\b\nExamples:\n" + "\n".join(f"  {example}" for example in self.examples)


def settings() -> tuple[FarmHome, LabConfig]:
    """Read home and configuration from the environment and `farm.toml`. Raises `UsageError`."""
    from orchestrator.config.home import FarmHome
    from orchestrator.config.lab import LabConfig

    home = FarmHome.from_environment()
    return home, LabConfig.load(home)


def open_farm() -> AnyFarm:
    """Open the farm under `$FARM_HOME`, with the broker and the database that the configuration names, or the
    one at `$FARM_URL`.

    From here on, what this process creates is for its user alone.
    """
    from agent.wire.private_folder import keep_new_files_private
    from orchestrator.farm.remote.farm import opened

    keep_new_files_private()
    home, lab = settings()
    return opened(home, lab)
