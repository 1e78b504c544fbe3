"""The farm's keys that an agent trusts: the one that it was enrolled with, then those announced since."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.wire.credentials import write_secret
from agent.wire.envelope import PublicKey

FILE: Final = "farm-keys.json"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class TrustedFarmKeys:
    """`enrolled`: the key of the credentials; a new enrolment voids what was announced before.

    `path`: file with the announced keys, which survive a restart.
    """

    enrolled: PublicKey
    path: Path
    _keys: dict[str, PublicKey] = field(init=False)

    def __post_init__(self) -> None:
        self._keep(self._announced() or [self.enrolled])

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the trusted keys."""
        return tuple(self._keys)

    def named(self, key_id: str) -> PublicKey:
        """Return a trusted key. Raises `ValueError` for the id of any other."""
        if key_id not in self._keys:
            raise ValueError(
                f"signed with key {key_id}, not with {' or '.join(self._keys)}, which this agent trusts; "
                "where the farm's key was replaced while this agent was away: farm lab agents rotate NAME"
            )
        return self._keys[key_id]

    def replace(self, keys: Sequence[PublicKey]) -> None:
        """Trust these from now on and no others. Raises `OSError`."""
        fields = {"enrolled": self.enrolled.text, "keys": [key.text for key in keys]}
        write_secret(self.path, json.dumps(fields))
        self._keep(keys)
        log.warning("the farm's keys are now, the newest first: %s", ", ".join(self._keys))

    def _keep(self, keys: Sequence[PublicKey]) -> None:
        self._keys = {key.key_id: key for key in keys}

    def _announced(self) -> list[PublicKey]:
        """Keys announced since the enrolment, which may be none. Raises `OSError` or `ValueError`."""
        if not self.path.exists():
            return []
        try:
            fields = json.loads(self.path.read_text())
            if fields["enrolled"] != self.enrolled.text:
                return []
            return [PublicKey.read(text) for text in fields["keys"]]
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{self.path} is malformed; enrol this host again") from error
