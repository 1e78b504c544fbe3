"""Simulates a power cut on a folder: only what was synchronised to the disk is left.

The calls that matter (`os.fsync`, `os.replace`, `os.rename`) run for real and are followed. A file's content
is durable once the file was synchronised, a name once its folder was. A rename that nobody synchronised may
reach the disk all the same, at any time: what it names has to be durable before.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest


class Disk:
    """Follows what is durable below `root`, which is taken to be durable itself."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.unsafe_renames: list[str] = []
        self._contents: dict[int, bytes] = {}
        self._entries: dict[int, dict[str, int]] = {}
        self._fsync, self._replace = os.fsync, os.replace
        patch.setattr(os, "fsync", self._on_fsync)
        patch.setattr(os, "replace", self._on_rename)
        patch.setattr(os, "rename", self._on_rename)

    def after_a_power_cut(self) -> dict[str, bytes]:
        """Return the files that are there afterwards, by their path below the root."""
        found: dict[str, bytes] = {}
        pending = [("", self.root.stat().st_ino)]
        while pending:
            place, inode = pending.pop()
            for name, child in self._entries.get(inode, {}).items():
                path = f"{place}{name}"
                if child in self._contents:
                    found[path] = self._contents[child]
                else:
                    pending.append((f"{path}/", child))
        return found

    def _on_fsync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        status = os.fstat(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if stat.S_ISDIR(status.st_mode):
            self._entries[status.st_ino] = {entry.name: entry.stat().st_ino for entry in path.iterdir()}
        else:
            self._contents[status.st_ino] = path.read_bytes()

    def _on_rename(self, source: Any, target: Any, **places: Any) -> None:
        self._replace(source, target, **places)
        moved = Path(target)
        if moved.is_file() and self._contents.get(moved.stat().st_ino) != moved.read_bytes():
            self.unsafe_renames.append(moved.name)
