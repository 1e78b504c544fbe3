"""Many agents in one process, for `farm_scale.py`: they speak the wire's messages and measure nothing.

    python -m benchmarks.farm_simulator --fd N --devices 1000 --per-agent 1 --paced 5000 --rate 100

Every line is `AGENT JSON`. The first `--paced` jobs take so long that all devices together end `--rate`
cells per second; the rest take no time. At the end of its input it prints, for each device, the
time from its result to its next job.
"""

import argparse
import heapq
import json
import random
import select
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from agent.wire.messages import AgentHello, Device, encode

SHA256 = "5" * 64


def fleet(devices: int, per_agent: int) -> dict[str, tuple[Device, ...]]:
    """Return the devices of each agent: GPUs that may run side by side."""
    agents: dict[str, list[Device]] = {}
    for number in range(devices):
        agent = f"rack-{number // per_agent:04d}"
        agents.setdefault(agent, []).append(_device(agent, number % per_agent))
    return {agent: tuple(found) for agent, found in agents.items()}


def _device(agent: str, number: int) -> Device:
    return Device(
        device_id=f"{agent}.gpu-{number}",
        kind="gpu",
        api="opencl",
        name="Simulated GPU",
        vendor="None",
        delegates=("gpu",),
        exclusion_group=f"host-cpu/gpu-{number}",
        environment={"driver": "1", "kernel": "6", "opencl": "3.0"},
        facts={"slot": str(number)},
    )


@dataclass
class Simulator:
    """One loop: jobs in, started and result out, when they are due."""

    link: socket.socket
    paced: int
    cell_s: float
    rng: random.Random
    taken: int = 0
    known: set[str] = field(default_factory=set)
    due: list[tuple[float, int, str, dict[str, Any]]] = field(default_factory=list)
    sent_at: dict[str, tuple[float, bool]] = field(default_factory=dict)
    gaps_paced: list[float] = field(default_factory=list)
    gaps_flooded: list[float] = field(default_factory=list)
    outgoing: bytearray = field(default_factory=bytearray)
    buffer: bytes = b""

    def serve(self) -> None:
        """Until the other end hangs up."""
        self.link.setblocking(False)
        while True:
            wait_s = max(0.0, self.due[0][0] - time.monotonic()) if self.due else None
            writing = [self.link] if self.outgoing else []
            readable, writable, _ = select.select([self.link], writing, [], wait_s)
            if readable and not self._receive():
                return
            while self.due and self.due[0][0] <= time.monotonic():
                _, _, agent, job = heapq.heappop(self.due)
                self._end(agent, job)
            if writable or self.outgoing:
                self._write()

    def say(self, agent: str, message: bytes) -> None:
        """Queue one line."""
        self.outgoing += agent.encode() + b" " + message

    def _receive(self) -> bool:
        try:
            data = self.link.recv(1 << 20)
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            agent, _, text = line.partition(b" ")
            message = json.loads(text)
            if message["type"] == "job":
                self._take(agent.decode(), message)
        return bool(data)

    def _take(self, agent: str, job: dict[str, Any]) -> None:
        if job["attempt_id"] in self.known:  # sent again, as after a hello: an agent's journal knows it
            return
        self.known.add(job["attempt_id"])
        now = time.monotonic()
        before = self.sent_at.pop(job["device_id"], None)
        paced = self.taken < self.paced
        if before is not None:
            (self.gaps_paced if before[1] and paced else self.gaps_flooded).append(now - before[0])
        self.taken += 1
        started = {"type": "started", "attempt_id": job["attempt_id"], "epoch": job["epoch"]}
        self.say(agent, json.dumps(started).encode() + b"\n")
        takes_s = self.rng.uniform(0.0, 2 * self.cell_s) if paced else 0.0
        # The number decides between equal times: the jobs, which are dictionaries, cannot be compared.
        heapq.heappush(self.due, (now + takes_s, self.taken, agent, job | {"paced": paced}))

    def _end(self, agent: str, job: dict[str, Any]) -> None:
        self.sent_at[job["device_id"]] = (time.monotonic(), job["paced"])
        self.say(agent, json.dumps(_result(job)).encode() + b"\n")

    def _write(self) -> None:
        try:
            del self.outgoing[: self.link.send(self.outgoing)]
        except BlockingIOError:
            return
        except BrokenPipeError:
            # The other end has hung up, which the next `_receive` tells.
            self.outgoing.clear()


def _result(job: dict[str, Any]) -> dict[str, Any]:
    """Return a result of the usual size: about 2 KB."""
    names = ("init", "init_warm", "first", "p50", "p90", "p99", "mean")
    latency = {**dict.fromkeys(names, 1.25), "ci95": [1.2, 1.3]}
    measurement = {
        "latency_ms": latency,
        "samples": 300,
        "memory_peak_bytes": 50_000_000,
        "accuracy": {
            "reference": "litert 2.3.0", "max_abs": 1e-6, "rel_l2": 1e-7, "cosine": 1.0, "verdict": "pass",
            "rule": "rel l2 <= 1e-4",
        },
        "delegation": {"status": "full", "delegated_ops": 66, "total_ops": 66, "partitions": 1},
        "settings": {"threads": "1", "precision": "fp32", "schedule": "plain", "device": "simulated"},
        "samples_sha256": SHA256,
    }  # fmt: skip
    return {
        "type": "result",
        "attempt_id": job["attempt_id"],
        "epoch": job["epoch"],
        "cell_id": job["cell_id"],
        "device_id": job["device_id"],
        "status": "done",
        "measurement": measurement,
        "environment": {"driver": "1", "kernel": "6", "opencl": "3.0"},
        "facts": {"clock_mhz": "1980", "power_w": "312", "temp_c": "61"},
        "log_tail": "measure 1/3\nmeasure 2/3\nmeasure 3/3\n" * 8,
        "duration_ns": 12_000_000,
    }


def main() -> None:
    """Serve; print the gaps as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--fd", "--devices", "--per-agent", "--paced"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    given = parser.parse_args()
    simulator = Simulator(
        link=socket.socket(fileno=given.fd),
        paced=given.paced,
        cell_s=given.devices / given.rate,
        rng=random.Random(1),  # noqa: S311  # a load, not a secret
    )
    for agent, devices in fleet(given.devices, given.per_agent).items():
        hello = AgentHello(agent_id=agent, host=agent, version="0", devices=devices)
        simulator.say(agent, encode(hello))
    simulator.serve()
    print(json.dumps({"paced": simulator.gaps_paced, "flooded": simulator.gaps_flooded}))


if __name__ == "__main__":
    main()
