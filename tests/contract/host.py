"""A lab machine whose agent is the fake one: `host.py --state DIR --store DIR`.

The link to the broker is the product's own. Where one of the two ends, both are started again.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.services.processes import die_with_parent

PREFIX = "fake."


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--state", "--store"):
        parser.add_argument(name, type=Path, required=True)
    given = parser.parse_args()
    (given.state / "link").mkdir(parents=True, exist_ok=True)
    while True:
        _serve(given.state, given.store)
        time.sleep(0.1)


def _serve(state: Path, store: Path) -> None:
    """One life of agent and link, joined by a socket pair."""
    agents_end, links_end = socket.socketpair()
    fake = [sys.executable, str(Path(__file__).with_name("fake_agent.py")), "--embedded"]
    link = [sys.executable, "-P", "-m", "agent.link", "--state", str(state), "--watchdog", "20"]
    with agents_end, links_end:
        children = [
            _child([*fake, "--state", str(state), "--store", str(store), "--prefix", PREFIX], agents_end),
            _child(link, links_end),
        ]
    while all(child.poll() is None for child in children):
        time.sleep(0.02)
    for child in children:
        child.kill()
        child.wait()


def _child(command: list[str], end: socket.socket) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*command, "--fd", str(end.fileno())],
        pass_fds=(end.fileno(),),
        preexec_fn=die_with_parent,  # noqa: PLW1509  # prctl alone
    )


if __name__ == "__main__":
    main()
