"""The key that signs for the farm: a file that its user alone may read, made on first use."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from agent.wire.credentials import write_secret
from agent.wire.envelope import SigningKey
from orchestrator.errors import FarmError

FILE: Final = "farm.key"


def farm_key(folder: Path) -> SigningKey:
    """Read or make the key. Two processes that come at once get the same one. Raises `FarmError`."""
    path = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _make(path)
        require_private(path)
        return SigningKey.read(path.read_text().strip())
    except OSError as error:
        raise FarmError(f"the farm's key {path} cannot be used: {error.strerror}") from error
    except ValueError as error:
        raise FarmError(
            f"{path} is no key of the farm ({error}); restore it, or enrol every agent anew"
        ) from error


def require_private(path: Path) -> None:
    """Raises `FarmError` for a file that others can read, and `OSError`."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise FarmError(
            f"{path} can be read by others (mode {mode:o}); run: chmod 600 {path}, "
            "and enrol the agents anew where somebody may have read it"
        )


def _make(path: Path) -> None:
    draft = path.with_name(f".{FILE}.{os.getpid()}")
    write_secret(draft, SigningKey.new().secret() + "\n")
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()
