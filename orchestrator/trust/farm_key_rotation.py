"""The farm's keys while one replaces another: both are good for a while, then the new one alone.

The former key is in `farm.key.former`, as JSON with the time of its end; `farm.key` is the newest.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from agent.wire.credentials import write_secret
from agent.wire.envelope import PublicKey, SigningKey
from orchestrator.config.clock import utc_now
from orchestrator.errors import FarmError, UsageError
from orchestrator.trust.farm_key_file import FILE, farm_key, require_private

FORMER_FILE: Final = f"{FILE}.former"
REFRESH_S: Final = 1.0
"""How long a running farm can go on with the keys of before."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FarmKeys:
    """The farm's keys that are good now. `until`: the end of the former one."""

    current: SigningKey
    former: SigningKey | None = None
    until: datetime | None = None

    @property
    def public(self) -> tuple[PublicKey, ...]:
        """What an agent is to trust, the newest first."""
        return (self.current.public, *([self.former.public] if self.former else []))

    @property
    def ids(self) -> tuple[str, ...]:
        """The same by their ids."""
        return tuple(key.key_id for key in self.public)

    def named(self, key_id: str) -> PublicKey | None:
        """The key of this id, while it is good."""
        return next((key for key in self.public if key.key_id == key_id), None)

    def signing_for(self, trusted: Collection[str]) -> SigningKey:
        """The newest key that an agent trusts. What nobody knows of it: the one that it had longest."""
        if self.former is not None and self.current.public.key_id not in trusted:
            return self.former
        return self.current


@dataclass(slots=True)
class FarmKeyFolder:
    """The keys of a folder, read anew as they change; any thread may ask."""

    folder: Path
    _keys: FarmKeys = field(init=False)
    _read_at_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._keys = read(self.folder, utc_now())
        self._read_at_s = time.monotonic()

    def keys(self) -> FarmKeys:
        """Those that are good now. A folder that cannot be read changes nothing, and is told of."""
        if time.monotonic() - self._read_at_s < REFRESH_S:
            return self._keys
        self._read_at_s = time.monotonic()
        try:
            found = read(self.folder, utc_now())
        except FarmError as error:
            log.error("the farm goes on with the keys that it has: %s", error)
            return self._keys
        if found.ids != self._keys.ids:
            log.warning("the farm's keys are now, the newest first: %s", ", ".join(found.ids))
        self._keys = found
        return found


def read(folder: Path, now: datetime) -> FarmKeys:
    """The keys of a folder; a former one whose time is over is deleted. Raises `FarmError`."""
    current, path = farm_key(folder), folder / FORMER_FILE
    try:
        require_private(path)
        said = json.loads(path.read_text())
        former, until = SigningKey.read(said["key"]), datetime.fromisoformat(said["until"])
        if until <= now:
            path.unlink(missing_ok=True)
            return FarmKeys(current)
    except FileNotFoundError:
        return FarmKeys(current)
    except OSError as error:
        raise FarmError(f"the farm's former key {path} cannot be used: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise FarmError(
            f"{path} is no former key of the farm ({error}); delete it to end its time"
        ) from error
    if former.public.key_id == current.public.key_id:
        return FarmKeys(current)
    return FarmKeys(current, former, until)


def rotate(folder: Path, now: datetime, until: datetime) -> FarmKeys:
    """Make a new key; the one that was current is good until then. Raises `UsageError` or `FarmError`."""
    keys = read(folder, now)
    if keys.former is not None:
        raise UsageError(
            f"key {keys.former.public.key_id} is still good until {keys.until:%Y-%m-%d %H:%M} UTC; "
            "rotate again after it, or end its time now: farm keys retire"
        )
    new = SigningKey.new()
    try:
        said = {"key": keys.current.secret(), "until": until.isoformat()}
        write_secret(folder / FORMER_FILE, json.dumps(said) + "\n")
        write_secret(folder / FILE, new.secret() + "\n")
    except OSError as error:
        raise FarmError(f"{folder} cannot take a new key: {error.strerror}") from error
    return FarmKeys(new, keys.current, until)


def retire(folder: Path, now: datetime) -> FarmKeys:
    """End the time of the former key now. Raises `UsageError` where there is none, and `FarmError`."""
    keys = read(folder, now)
    if keys.former is None:
        raise UsageError("the farm has one key; a new one: farm keys rotate")
    try:
        (folder / FORMER_FILE).unlink(missing_ok=True)
    except OSError as error:
        raise FarmError(f"{folder / FORMER_FILE} cannot be deleted: {error.strerror}") from error
    return FarmKeys(keys.current)
