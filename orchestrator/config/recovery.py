"""Reads the operator's command that recovers a lost device: from `farm.toml`, and from nowhere else."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.errors import UsageError

DEFAULT_LIMIT_S: Final = 120.0
"""Seconds that the command may take. Chosen: a machine that a script switches off and on answers by then; a
longer one keeps the recovery of other machines waiting.
"""

_LONGEST_LIMIT_S: Final = 1800.0
"""The longest such time in seconds: half of the hour within which a device is recovered once."""

_OTHERS_MAY_WRITE: Final = 0o022
"""Bits of a file's mode: its group, or everybody, may change it."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """`command`: a program by its absolute path, and its first arguments; `limit_s`: how long it may take."""

    command: tuple[str, ...]
    limit_s: float = DEFAULT_LIMIT_S

    @classmethod
    def read(cls, table: Mapping[str, object], where: str) -> "Recovery | None":
        """Read the table `[recovery]` of the file `where`; None without one. Raises `UsageError`."""
        if not table:
            return None
        unknown = sorted(set(table) - {"command", "limit_s"})
        if unknown:
            raise UsageError(f"{where}: [recovery]: unknown key {unknown[0]!r}; known: command, limit_s")
        command = table.get("command")
        if not isinstance(command, list) or not command or not all(isinstance(one, str) for one in command):
            raise UsageError(f'{where}: [recovery]: command must be a list of texts: ["/opt/recover"]')
        if not Path(command[0]).is_absolute():
            raise UsageError(f"{where}: [recovery]: {command[0]!r} is not an absolute path")
        limit_s = table.get("limit_s", DEFAULT_LIMIT_S)
        if isinstance(limit_s, bool) or not isinstance(limit_s, int | float):
            limit_s = -1
        if not 0 < limit_s <= _LONGEST_LIMIT_S:
            raise UsageError(
                f"{where}: [recovery]: limit_s must be above 0 and at most {_LONGEST_LIMIT_S:.0f} seconds, "
                f"not {table['limit_s']!r}"
            )
        return cls(tuple(command), float(limit_s))

    def require_usable(self) -> None:
        """Check the program before it is needed. Raises `UsageError`."""
        program = Path(self.command[0])
        if not program.is_file() or not os.access(program, os.X_OK):
            raise UsageError(f"[recovery]: {program} is no program that this user may run")
        # It runs with the farm's rights: whoever may change it would have these, too.
        if program.stat().st_mode & _OTHERS_MAY_WRITE:
            raise UsageError(f"[recovery]: others may change {program}; chmod go-w {program}")
