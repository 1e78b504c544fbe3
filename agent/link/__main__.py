"""`python -m agent.link --fd N --state DIR --watchdog S`: started by the agent's daemon, never by hand."""

import argparse
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.config import LinkTimes
from agent.link.artifact_client import artifacts_of
from agent.link.artifact_sync import Artifacts, ArtifactSync
from agent.link.broker import AgentBroker, NameClaim, work
from agent.link.relay import Relay, leave
from agent.link.signing import KEYS_FILE, AgentSeal, TrustedFarmKeys
from agent.wire.credentials import FILE, Credentials, write_secret
from agent.wire.envelope import PublicKey, SigningKey
from agent.wire.logs import brief

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


def load_identity(state: Path) -> Identity:
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
        TrustedFarmKeys(PublicKey.read(credentials.farm_key), folder / KEYS_FILE),
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


def main(arguments: list[str] | None = None) -> int:
    """Serve until the daemon hangs up or the broker is lost. Returns the exit code."""
    given = _parser().parse_args(arguments)
    # The daemon alone ends it, by hanging up: Ctrl-C in a terminal reaches the whole process group.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    identity = load_identity(given.state)
    relay = Relay(
        broker=identity.broker,
        seal=identity.seal,
        artifacts=ArtifactSync(identity.artifacts, LinkTimes.from_environment().heartbeat_s),
        daemon=socket.socket(fileno=given.fd),
        watchdog_s=given.watchdog,
        replaced=identity.replaced,
        claim=NameClaim.of(identity.broker, given.state, given.watchdog),
    )
    relay.connect()
    for target in (relay.relay_up, relay.relay_results, relay.watch):
        threading.Thread(target=_or_leave, args=(target,), daemon=True).start()
    leave(work(identity.broker.application(), identity.broker.agent_id, relay.on_message))
    return 1


def _or_leave(target: Callable[[], None]) -> None:
    """Run one thread; end the whole process if it fails, which otherwise would only look alive."""
    try:
        target()
    except Exception as error:  # noqa: BLE001  # a new process cures any failure
        leave(f"{target.__name__}: {brief(error)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m agent.link", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="connected socket to the daemon")
    parser.add_argument("--state", type=Path, required=True, help="the agent's state folder")
    parser.add_argument("--watchdog", type=float, default=60.0, help="seconds for a round trip")
    return parser


if __name__ == "__main__":
    sys.exit(main())
