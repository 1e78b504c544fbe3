"""The key that signs for the farm: a file that only its user may read, made on first use."""

import stat
from pathlib import Path
from typing import Final

from agent.wire.envelope import SigningKey
from agent.wire.private_folder import FILE_MODE, FOLDER_MODE
from orchestrator.errors import FarmError
from runtime.common.durable import create_once

FILE: Final = "farm.key"
_OTHERS: Final = 0o077
"""Mode bits that let the group or others use a file."""


def farm_key(folder: Path) -> SigningKey:
    """Read or make the key. Two processes that call at once get the same one. Raises `FarmError`."""
    path = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
        if not path.exists():
            create_once(path, f"{SigningKey.new().secret()}\n".encode(), FILE_MODE)
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
