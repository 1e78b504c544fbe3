"""Machines of a lab as network namespaces on one bridge.

A namespace lives as long as its holder process, so nothing is left behind however the tests end.
Nothing of the test machine's own network is touched.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.services.processes import Server

SUBNET = "10.93.0"
_BRIDGE = "br0"


@dataclass
class Node:
    """One machine: `address` on the lab's network; its cable can be pulled."""

    name: str
    address: str
    holder: Server
    hub: Server

    def command(self, command: Sequence[str]) -> list[str]:
        """`command` as it runs on this machine (`nsenter` execs it: the process id stays)."""
        return [*_enter(self.holder), *command]

    def run(self, *command: str) -> str:
        return _run(self.command(command))

    def pull_cable(self) -> None:
        """Nothing gets through any more, and nobody is told."""
        _run([*_enter(self.hub), "ip", "link", "set", self.name, "down"])

    def plug_cable(self) -> None:
        _run([*_enter(self.hub), "ip", "link", "set", self.name, "up"])

    def drop_incoming(self, percent: int = 100, source: str | None = None) -> None:
        """Lose incoming packets, all or some at random (also those of one address only)."""
        self._drop("input", "iifname", percent, f"ip saddr {source} " if source else "")

    def drop_outgoing(self, percent: int = 100, target: str | None = None) -> None:
        """Lose outgoing packets, all or some at random (also those to one address only)."""
        self._drop("output", "oifname", percent, f"ip daddr {target} " if target else "")

    def divert(self, target: str, port: int, to: str) -> None:
        """Divert connections to a port of `target` to the same port of the machine at address `to`."""
        self.run("nft", "add", "table", "ip", "detour")
        self.run("nft", "add chain ip detour output { type nat hook output priority -100; }")
        self.run("nft", f"add rule ip detour output ip daddr {target} tcp dport {port} dnat to {to}")

    def drop_nothing(self) -> None:
        """All that was dropped or diverted is not any more."""
        self.run("nft", "flush", "ruleset")

    def _drop(self, chain: str, interface: str, percent: int, whose: str) -> None:
        some = "" if percent >= 100 else f"numgen random mod 100 < {percent} "
        self.run("nft", "add", "table", "inet", "fault")
        self.run("nft", f"add chain inet fault {chain} {{ type filter hook {chain} priority 0; }}")
        self.run("nft", f'add rule inet fault {chain} {interface} != "lo" {whose}{some}drop')


@dataclass
class Network:
    """A bridge in a namespace of its own, and the machines plugged into it."""

    folder: Path
    nodes: dict[str, Node] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hub = self._namespace("hub")
        hub = _enter(self.hub)
        _run([*hub, "ip", "link", "add", _BRIDGE, "type", "bridge"])
        _run([*hub, "ip", "link", "set", _BRIDGE, "up"])

    def add(self, name: str) -> Node:
        """One more machine, plugged in."""
        holder = self._namespace(name)
        node = Node(name, f"{SUBNET}.{10 + len(self.nodes)}", holder, self.hub)
        hub = _enter(self.hub)
        peer = ["peer", "name", "eth0", "netns", str(holder.pid)]
        _run([*hub, "ip", "link", "add", name, "type", "veth", *peer])
        _run([*hub, "ip", "link", "set", name, "master", _BRIDGE, "up"])
        node.run("ip", "address", "add", f"{node.address}/24", "dev", "eth0")
        node.run("ip", "link", "set", "eth0", "up")
        self.nodes[name] = node
        return node

    def heal(self) -> None:
        """Every cable plugged in, nothing dropped."""
        for node in self.nodes.values():
            node.plug_cable()
            node.drop_nothing()

    def close(self) -> None:
        for node in self.nodes.values():
            node.holder.kill()
        self.hub.kill()

    def _namespace(self, name: str) -> Server:
        own = Path("/proc/self/ns/net").readlink()
        holder = Server(["unshare", "--net", "sleep", "infinity"], self.folder / f"namespace-{name}.log")
        link = Path(f"/proc/{holder.pid}/ns/net")
        holder.until(lambda: link.readlink() != own, f"namespace {name}")
        _run([*_enter(holder), "ip", "link", "set", "lo", "up"])
        return holder


def _enter(holder: Server) -> list[str]:
    return ["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"]


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(list(command), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
