"""Makes the folders of a farm's home, for this user alone."""

from __future__ import annotations

from agent.wire.private_folder import ExposedError, private_folder
from orchestrator.config.home import NETWORK_FILESYSTEMS, FarmHome, filesystem_of
from orchestrator.errors import UnreachableError


def make_folders(home: FarmHome) -> None:
    """Make what is missing, and close what others could read. Raises `UnreachableError`."""
    try:
        for folder in (home.root, home.store, home.agent):
            private_folder(folder)
    except ExposedError as error:
        raise UnreachableError(str(error)) from error
    except OSError as error:
        raise UnreachableError(
            f"the farm's folder {home.root} cannot be used: {error.strerror}; set FARM_HOME to another"
        ) from error
    if (kind := filesystem_of(home.root)) in NETWORK_FILESYSTEMS:
        raise UnreachableError(
            f"{home.root} lies on {kind}, where the database would break; set FARM_HOME to a local folder"
        )
