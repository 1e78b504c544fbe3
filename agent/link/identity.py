"""The identity of this agent in a lab: its name, its connection to the broker, its seal and its artifacts."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.link.artifact_client import artifacts_of
from agent.link.artifact_sync import Artifacts
from agent.link.broker import AgentBroker
from agent.link.signing import AgentSeal
from agent.link.trusted_farm_keys import FILE as KEYS
from agent.link.trusted_farm_keys import TrustedFarmKeys
from agent.wire.credentials import FILE, Credentials, write_secret
from agent.wire.envelope import PublicKey, SigningKey

MEMORY: Final = "seen"
"""In the link's folder: the nonces of the envelopes that were opened."""
AUTHORITY: Final = "broker-ca.pem"
"""In the link's folder: the CA of the broker, since Redis' client reads it from a file only."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A link's means to act for its agent. `replaced`: whether it was enrolled again since."""

    broker: AgentBroker
    seal: AgentSeal
    artifacts: Artifacts
    replaced: Callable[[], bool]


def load(state: Path) -> Identity:
    """Read it from the agent's state folder. Raises `OSError` or `ValueError`."""
    path = state / FILE
    # Taken before the file is read, so that credentials replaced in between are noticed.
    read_at = path.stat().st_mtime_ns
    credentials = Credentials.read(state)
    folder = state / "link"
    folder.mkdir(exist_ok=True)
    authority = None
    if credentials.broker_ca is not None:
        authority = folder / AUTHORITY
        write_secret(authority, credentials.broker_ca)
    seal = AgentSeal(
        credentials.agent_id,
        SigningKey.read(credentials.signing_key),
        TrustedFarmKeys(PublicKey.read(credentials.farm_key), folder / KEYS),
        folder / MEMORY,
    )
    return Identity(
        AgentBroker(credentials.agent_id, credentials.broker_url, credentials.key_prefix, authority),
        seal,
        artifacts_of(credentials.values(), state),
        lambda: _changed(path, read_at),
    )


def _changed(path: Path, read_at: int) -> bool:
    try:
        return path.stat().st_mtime_ns != read_at
    except OSError:
        return False
