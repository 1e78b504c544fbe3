"""Small file systems, to be filled."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a file system of this size (as `mount -o size=` has it) at `folder`, removed afterwards."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Use every free byte; the file to delete later."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as out:
        block = 1 << 16
        while block:
            try:
                out.write(bytes(block))
            except OSError:
                block //= 2
    return ballast
