"""Defines the folders under `$FARM_HOME`, in which a farm keeps its data."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FarmHome:
    """The folders under `$FARM_HOME`.

    farm.db            the database (SQLite, WAL)
    store/             content-addressed models and sample artifacts, shared with the embedded agent
    agent/             the embedded agent's own state: journal, spool, leases, references, work folders
    site/              the last built site
    keys/              the key that signs for this farm
    scheduler.lock     held (flock) by the one process that schedules
    """

    root: Path

    @classmethod
    def from_environment(cls) -> FarmHome:
        """`$FARM_HOME`, else `$XDG_DATA_HOME/farm`, else `~/.local/share/farm`."""
        explicit = os.environ.get("FARM_HOME")
        if explicit:
            return cls(Path(explicit).expanduser().absolute())
        data = os.environ.get("XDG_DATA_HOME")
        return cls((Path(data) if data else Path.home() / ".local" / "share") / "farm")

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.root / "farm.db"

    @property
    def store(self) -> Path:
        """Root of the content-addressed store."""
        return self.root / "store"

    @property
    def agent(self) -> Path:
        """State folder of the embedded agent."""
        return self.root / "agent"

    @property
    def site(self) -> Path:
        """Default output of `farm site build`."""
        return self.root / "site"

    @property
    def keys(self) -> Path:
        """Folder of the farm's own key."""
        return self.root / "keys"

    @property
    def scheduler_lock(self) -> Path:
        """Lock file of the scheduling process."""
        return self.root / "scheduler.lock"
