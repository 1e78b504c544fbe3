"""`python -m agent.link --fd N --state DIR --watchdog S`: started by the agent's daemon, never by hand."""

import argparse
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from agent.config import LinkTimes
from agent.link.artifact_sync import ArtifactSync
from agent.link.identity import load
from agent.link.name_claim import NameClaim
from agent.link.relay import Relay, brief, leave
from agent.link.worker import work


def main(arguments: list[str] | None = None) -> int:
    """Serve until the daemon hangs up or the broker is lost. Returns the exit code."""
    given = _parser().parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    identity = load(given.state)
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
