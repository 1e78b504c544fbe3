"""The key that signs for the farm: a file that only its user may read, made on first use."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from agent.wire.credentials import write_secret
from agent.wire.envelope import SigningKey
from agent.wire.private_folder import FOLDER_MODE
from orchestrator.errors import FarmError

FILE: Final = "farm.key"
_OTHERS: Final = 0o077
"""Mode bits that let the group or others use a file."""


def farm_key(folder: Path) -> SigningKey:
    """Read or make the key. Two processes that call at once get the same one. Raises `FarmError`."""
    path = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
        if not path.exists():
            _make(path)
        require_private(path)
        return SigningKey.read(path.read_text().strip())
    except OSError as error:
        raise FarmError(f"the farm's key {path} cannot be used: {error.strerror}") from error
    except ValueError as error:
        raise FarmError(
            f"{path} is not a key of the farm ({error}); restore it, or enrol every agent again"
        ) from error


def require_private(path: Path) -> None:
    """Check that only its user can read a file. Raises `FarmError` where others can, or `OSError`."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        raise FarmError(
            f"{path} can be read by others (mode {mode:o}); run: chmod 600 {path}, "
            "and enrol the agents again where somebody may have read it"
        )


def _make(path: Path) -> None:
    draft = path.with_name(f".{FILE}.{os.getpid()}")
    write_secret(draft, SigningKey.new().secret() + "\n")
    # A link, not a rename: of two processes that make a key at once, the second must not replace the first's.
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()
