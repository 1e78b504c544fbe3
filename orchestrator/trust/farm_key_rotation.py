"""The farm's keys: one, made on first use, signs; after a rotation two are valid for a while.

`farm.key` holds the newest key; `farm.key.former` holds the one before it, as JSON with its expiry. Only
their user may read them.
"""

import json
import logging
import stat
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from agent.wire.credentials import write_secret
from agent.wire.envelope import PublicKey, SigningKey
from agent.wire.private_folder import FILE_MODE, FOLDER_MODE
from orchestrator.config.clock import utc_now
from orchestrator.errors import FarmError, UsageError
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


FORMER_FILE: Final = f"{FILE}.former"
REFRESH_S: Final = 1.0
"""Seconds between two reads of the folder, and so how long a running farm can use replaced keys. Smaller
costs more file reads; larger delays the end of a retired key."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FarmKeys:
    """The farm's valid keys. `until`: when the former one expires."""

    current: SigningKey
    former: SigningKey | None = None
    until: datetime | None = None

    @property
    def public(self) -> tuple[PublicKey, ...]:
        """The public keys that an agent is to trust, the newest first."""
        return (self.current.public, *([self.former.public] if self.former else []))

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the valid keys, the newest first."""
        return tuple(key.key_id for key in self.public)

    def named(self, key_id: str) -> PublicKey | None:
        """Return the key of this id; None where it is not valid."""
        return next((key for key in self.public if key.key_id == key_id), None)

    def signing_for(self, trusted: Collection[str]) -> SigningKey:
        """Return the newest key that an agent trusts.

        An empty `trusted` means an agent that sent nothing yet: it surely trusts the former key.
        """
        if self.former is not None and self.current.public.key_id not in trusted:
            return self.former
        return self.current


@dataclass(slots=True)
class FarmKeyFolder:
    """The valid keys of a folder, read again as they change; any thread may use it."""

    folder: Path
    _keys: FarmKeys = field(init=False)
    _read_at_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._keys = read(self.folder, utc_now())
        self._read_at_s = time.monotonic()

    def keys(self) -> FarmKeys:
        """Return the valid keys: the last ones, with an error in the log, where the folder cannot be read."""
        if time.monotonic() - self._read_at_s < REFRESH_S:
            return self._keys
        # Before the read: a folder that cannot be read is not tried again with every envelope.
        self._read_at_s = time.monotonic()
        try:
            found = read(self.folder, utc_now())
        except FarmError as error:
            log.error("the farm continues with the keys that it has: %s", error)
            return self._keys
        if found.ids != self._keys.ids:
            log.warning("the farm's keys are now, the newest first: %s", ", ".join(found.ids))
        self._keys = found
        return found


def read(folder: Path, now: datetime) -> FarmKeys:
    """Return the keys of a folder; an expired former key is deleted. Raises `FarmError`."""
    # In the other order than `rotate` writes: a rotation in between never hides the key that agents still
    # trust.
    current, path = farm_key(folder), folder / FORMER_FILE
    try:
        require_private(path)
        fields = json.loads(path.read_text())
        former, until = SigningKey.read(fields["key"]), datetime.fromisoformat(fields["until"])
        if until <= now:
            path.unlink(missing_ok=True)
            return FarmKeys(current)
    except FileNotFoundError:
        return FarmKeys(current)
    except OSError as error:
        raise FarmError(f"the farm's former key {path} cannot be used: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise FarmError(
            f"{path} is not a former key of the farm ({error}); delete it to end its time"
        ) from error
    # A rotation is under way, or was cut off, before it wrote the new key.
    if former.public.key_id == current.public.key_id:
        return FarmKeys(current)
    return FarmKeys(current, former, until)


def rotate(folder: Path, now: datetime, until: datetime) -> FarmKeys:
    """Make a new key; the current one stays valid until `until`. Raises `UsageError` or `FarmError`."""
    keys = read(folder, now)
    if keys.former is not None:
        raise UsageError(
            f"key {keys.former.public.key_id} is still good until {keys.until:%Y-%m-%d %H:%M} UTC; "
            "rotate again after it, or end its time now: farm lab keys retire"
        )
    new = SigningKey.new()
    try:
        fields = {"key": keys.current.secret(), "until": until.isoformat()}
        # The former key first: a crash in between leaves one key twice, which `read` takes for one; the
        # other order would lose the key that all agents trust.
        write_secret(folder / FORMER_FILE, json.dumps(fields) + "\n")
        write_secret(folder / FILE, new.secret() + "\n")
    except OSError as error:
        raise FarmError(f"{folder} cannot take a new key: {error.strerror}") from error
    return FarmKeys(new, keys.current, until)


def retire(folder: Path, now: datetime) -> FarmKeys:
    """End the former key now. Raises `UsageError` where there is none, or `FarmError`."""
    keys = read(folder, now)
    if keys.former is None:
        raise UsageError("the farm has one key only; make a new one with: farm lab keys rotate")
    try:
        (folder / FORMER_FILE).unlink(missing_ok=True)
    except OSError as error:
        raise FarmError(f"{folder / FORMER_FILE} cannot be deleted: {error.strerror}") from error
    return FarmKeys(keys.current)
