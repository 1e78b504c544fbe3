"""Limits what the farm stores: caps per file, a budget for the store, and a floor of free space."""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from orchestrator.errors import FarmError, UsageError

MIB: Final = 1 << 20
"""Bytes of a mebibyte."""

GIB: Final = 1 << 30
"""Bytes of a gibibyte."""

_LARGEST_FLOOR_BYTES = GIB
"""Free space that is kept on a large file system. Chosen: the database, by default on
the same disk, can finish what is under way.
"""

_FLOOR_PART = 50
"""The divisor of the part (2 %) of a small file system kept free, where 1 GiB would be most of it."""


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Limits of the store, in bytes. Set with `FARM_<NAME>`, or under `[store]` in `farm.toml`.

    store_bytes       bytes of models and samples together above which submissions are refused; None: only
                      the floor limits them
    artifact_bytes    the largest model
    samples_bytes     the largest file of samples that an agent may send
    free_bytes        free space that is never used up; None: 2 % of the file system, at most 1 GiB
    """

    store_bytes: int | None = None
    artifact_bytes: int = 2 * GIB
    samples_bytes: int = 64 * MIB
    free_bytes: int | None = None

    @classmethod
    def read(cls, table: Mapping[str, object], environment: Mapping[str, str], where: str) -> "StoreLimits":
        """Read the environment first, then the table of the file `where`. Raises `UsageError`."""
        names = [entry.name for entry in fields(cls)]
        unknown = sorted(set(table) - set(names))
        if unknown:
            raise UsageError(f"{where}: [store]: unknown key {unknown[0]!r}; known: {', '.join(names)}")
        chosen: dict[str, int] = {}
        for name in names:
            variable = f"FARM_{name.upper()}"
            if environment.get(variable):
                chosen[name] = _bytes(variable, environment[variable])
            elif name in table:
                chosen[name] = _bytes(f"{where}: {name}", table[name])
        return cls(**chosen)

    def floor_bytes(self, total_bytes: int) -> int:
        """Free space to be kept on a file system of that size."""
        if self.free_bytes is not None:
            return self.free_bytes
        return min(_LARGEST_FLOOR_BYTES, total_bytes // _FLOOR_PART)


def used_bytes(root: Path) -> int:
    """Bytes of all files of a store together."""
    total = 0
    pending = [root]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(Path(entry.path))
                        continue
                    # Files appear and vanish while they are counted.
                    with suppress(FileNotFoundError):
                        total += entry.stat(follow_symlinks=False).st_size
        except FileNotFoundError:
            continue
    return total


def require_budget(root: Path, limits: StoreLimits, more_bytes: int = 0) -> None:
    """Refuse work that exceeds budget or floor, with `more_bytes`. Raises `FarmError` with the figures."""
    require_floor(root, limits, more_bytes)
    if limits.store_bytes is None:
        return
    used = used_bytes(root)
    # A used-up budget also refuses work of unknown size, for which `more_bytes` is 0.
    if used >= limits.store_bytes or used + more_bytes > limits.store_bytes:
        wanted = f", {size_text(more_bytes)} more would be added" if more_bytes else ""
        raise FarmError(
            f"the store {root} holds {size_text(used)}{wanted}, "
            f"its budget is {size_text(limits.store_bytes)}: "
            "nothing new is accepted; free space with: farm db prune --keep 90d, or raise FARM_STORE_BYTES"
        )


def require_floor(root: Path, limits: StoreLimits, more_bytes: int = 0) -> None:
    """Refuse work that would leave less free space than the floor. Raises `FarmError` with the figures."""
    # The store may not have been made yet; its nearest folder is on the file system that it will be on.
    there = next(folder for folder in (root, *root.parents) if folder.exists())
    disk = shutil.disk_usage(there)
    floor = limits.floor_bytes(disk.total)
    if disk.free - more_bytes < floor:
        wanted = f", {size_text(more_bytes)} more would be added" if more_bytes else ""
        raise FarmError(
            f"only {size_text(disk.free)} are free for the store {root}{wanted}, and {size_text(floor)} are "
            "kept free (FARM_FREE_BYTES): nothing new is accepted; "
            "free space, e.g. with: farm db prune --keep 90d"
        )


def size_text(size_bytes: int) -> str:
    """`1.5 GiB`: for people."""
    value = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{size_bytes} bytes" if unit == "bytes" else f"{value:.1f} {unit}"


def _bytes(where: str, value: object) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isdecimal() or not 0 < int(text) < 1 << 60:
        raise UsageError(f"{where}: {value!r} is not a number of bytes above 0")
    return int(text)
