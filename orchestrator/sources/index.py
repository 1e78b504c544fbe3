"""Remembers the sha256 of the artifact from each source, so that a second submission fetches nothing.

One small JSON file per source beside the artifacts, named by the hash of the source.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from orchestrator.sources.store import Store, StoredFile
from runtime.common.durable import write_atomically


def recall(store: Store, key: str) -> StoredFile | None:
    """Return the artifact that this source gave before, if the store still has it."""
    try:
        entry = json.loads(_path(store, key).read_bytes())
    except (OSError, ValueError):
        return None
    sha256 = entry.get("sha256") if isinstance(entry, dict) and entry.get("key") == key else None
    if not isinstance(sha256, str) or not re.fullmatch(r"[0-9a-f]{64}", sha256):
        return None
    return store.find(sha256)


def remember(store: Store, key: str, found: StoredFile) -> None:
    """Record the artifact that the source gave."""
    path = _path(store, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    entry = json.dumps({"key": key, "sha256": found.sha256}) + "\n"
    # Not synchronised: an entry that a power cut spoils is none, and the source is fetched again.
    write_atomically(path, entry.encode(), sync=False)


def _path(store: Store, key: str) -> Path:
    return store.root / "sources" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
