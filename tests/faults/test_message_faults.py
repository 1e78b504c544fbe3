"""Scenarios 26, 27 and 31: messages repeated, replayed, forged, or of another protocol."""

from __future__ import annotations

import base64
import json
import pickle
import signal
import time

from agent.daemon import UPGRADE_EXIT
from agent.wire.messages import PROTOCOL_VERSION
from orchestrator.scheduling.inbox import UPGRADE_COMMAND
from tests.faults import truth
from tests.faults.lab import until

WORK = {"seconds": 0.2}
PATIENT = {"FARM_SUSPECT_S": 20, "FARM_LOST_S": 30, "FARM_WATCHDOG_S": 20}
"""An agent whose link is stopped for a while gets jobs even so."""


class Wiretap:
    """Copies what waits in a queue of the broker while its reader is stopped."""

    def __init__(self, lab, queue: str) -> None:
        self.lab = lab
        self.key = f"farm:{queue}"
        self.seen: list[bytes] = []

    def copy(self) -> list[bytes]:
        with self.lab.redis.client() as client:
            found = client.lrange(self.key, 0, -1)
        self.seen += [message for message in found if message not in self.seen]
        return found

    def put(self, messages) -> None:
        with self.lab.redis.client() as client:
            for message in messages:
                client.lpush(self.key, message)

    def multiply(self, times: int) -> None:
        """Every waiting message so often, in a random order."""
        copies = self.copy() * (times - 1)
        self.lab.chance.shuffle(copies)
        self.put(copies)

    @property
    def length(self) -> int:
        with self.lab.redis.client() as client:
            return client.llen(self.key)


def test_scenario_26_a_storm_of_duplicates_runs_and_counts_everything_once(fault_lab):
    lab = fault_lab
    lab.take_time(**PATIENT)
    lab.start("agA", devices=2)
    jobs, words = Wiretap(lab, "agent.agA.jobs"), Wiretap(lab, "agent.agA.ingest")
    for _ in range(3):
        until(lambda: not lab.view.open_cells(), "both devices are idle")
        lab.stop_links("agA", signal.SIGSTOP)
        lab.submit(4, gpu=WORK)
        until(jobs.copy, "jobs wait for the agent")
        jobs.multiply(5)
        lab.stop_links("agA", signal.SIGCONT)
        until(lambda: not jobs.length, "the agent has read all")
        lab.server.pause()
        until(words.copy, "words wait for the server")
        time.sleep(0.5)
        words.multiply(5)
        lab.server.resume()
    assert len(jobs.seen) >= 3
    until(lambda: not lab.view.open_cells(), "both devices are idle")
    lab.server.pause()
    replay(jobs)
    words.put(words.seen)
    lab.server.resume()
    lab.submit(1, gpu=WORK)
    assert lab.finish() == {"done": 26}, "what came after the replays"
    assert set(lab.view.starts().values()) == {1}, "a cell was run again"
    assert len(lab.view.attempts()) == 26
    agent = lab.agents["agA"]
    assert (agent.stop(), lab.server.stop()) == (0, 0)
    words.put(words.seen)
    agent.start()
    replay(jobs)
    lab.start_server()
    until(lambda: not words.length, "a server that remembers nothing has read the replays")
    lab.submit(1, gpu=WORK)
    assert lab.finish() == {"done": 28}, "what came after the replays"
    assert set(lab.view.starts().values()) == {1}, "a cell was run again"
    assert len(lab.view.attempts()) == 28


def replay(jobs: Wiretap) -> None:
    """Every job again, while no server is there to take back at once what is begun a second time."""
    jobs.put(jobs.seen)
    until(lambda: not jobs.length, "the agent has read the replays")
    time.sleep(3)


def forged(message: bytes, **changes) -> bytes:
    """Return a message as it lies in Redis with another body or other headers."""
    envelope = json.loads(message)
    body = json.loads(base64.b64decode(envelope["body"]))
    if "task" in changes:
        envelope["headers"]["task"] = changes["task"]
    if "payload" in changes:
        body[0][0] = changes["payload"]
    if "content_type" in changes:
        envelope["content-type"] = changes["content_type"]
    raw = changes.get("raw", json.dumps(body).encode())
    envelope["body"] = base64.b64encode(raw).decode()
    envelope["headers"]["id"] = envelope["properties"]["correlation_id"] = f"forged-{len(raw)}"
    return json.dumps(envelope).encode()


def forgeries(genuine: bytes, elsewhere: bytes) -> list[bytes]:
    """`elsewhere`: a genuine message to another agent."""
    payload = json.loads(base64.b64decode(json.loads(genuine)["body"]))[0][0]
    middle = len(payload) // 2
    other = "A" if payload[middle] != "A" else "B"
    return [
        forged(genuine, payload=payload[:middle] + other + payload[middle + 1 :]),
        forged(genuine, payload=payload[:-12]),
        forged(genuine, payload="{}"),
        forged(genuine, payload="[" * 100_000),
        forged(genuine, payload="x" * 50_000_000),
        forged(genuine, task="os.system"),
        forged(genuine, raw=pickle.dumps(("boom",)), content_type="application/x-python-serialize"),
        forged(genuine, raw=b"\xff\xfe not json"),
        b'{"body": "", "headers": {}, "properties": {}}',
        b"no JSON",
        elsewhere,
    ]


REFUSALS = ("is dropped:", "unregistered task", "invalid task message", "Can't decode message", "link ends")
"""What server and link say of a message that they do not obey: the farm's words, Celery's, and those of a
link that met what Celery itself cannot bear: it is replaced, and the message is gone.
"""


LOGGED_IN_FULL = 5
"""Refusals that each log names in full within a minute; the others are counted (`agent.wire.logs`)."""


def refused(log) -> int:
    """Count the messages that somebody refused explicitly."""
    return sum(any(words in line for words in REFUSALS) for line in log.read_text().splitlines())


def test_scenario_27_forged_messages_are_refused_and_everybody_lives(fault_lab):
    lab = fault_lab
    lab.take_time(**PATIENT)
    lab.start("agA", "agB", devices=1)
    names = "agent.agA.jobs", "agent.agB.jobs", "agent.agA.ingest"
    own, other, words = (Wiretap(lab, name) for name in names)
    lab.stop_links("agA", signal.SIGSTOP)
    lab.stop_links("agB", signal.SIGSTOP)
    lab.submit(4, gpu=WORK)
    until(lambda: own.copy() and other.copy(), "jobs wait for both agents")
    made = forgeries(own.seen[0], other.seen[0])
    own.put(made)
    for name in ("agA", "agB"):
        lab.stop_links(name, signal.SIGCONT)
    lab.server.pause()
    until(words.copy, "words wait for the server")
    words.put(forgeries(words.seen[0], own.seen[0]))
    lab.server.resume()
    assert lab.finish() == {"done": 8}
    until(lambda: not words.length and not own.length, "server and agent have read all")
    for log in (lab.server.log, lab.agents["agA"].state / "link" / "log"):
        assert refused(log) >= LOGGED_IN_FULL, "each says so, at a bounded rate"
    assert lab.server.running
    for agent in lab.agents.values():
        assert agent.running
    assert {fact.device_id for fact in lab.view.facts() if fact.device_id.startswith("agB")}
    devices = {(host[0].parent.name, fact.device_id) for host in lab.hosts for fact in truth.facts(host)}
    assert all(device.startswith(name) for name, device in devices), "nobody ran another's job"


def test_scenario_31_an_agent_of_another_protocol_keeps_its_results_until_it_is_upgraded(fault_lab):
    lab = fault_lab.start("agA", devices=1)
    agent = lab.agents["agA"]
    lab.submit(3, gpu={"seconds": 0.3, "first_seconds": 2})
    lab.until_running()
    agent.node.pull_cable()
    until(lambda: lab.owed("agA"), "a result waits for its receipt")
    agent.stop()
    agent.node.plug_cable()
    owed = lab.kept("agA")
    for protocol in (PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1):
        agent.start(FAULT_PROTOCOL=str(protocol))
        assert agent.server.end() == UPGRADE_EXIT
        said = agent.log.read_text()
        assert f"protocol {protocol}" in said
        assert UPGRADE_COMMAND in said
        assert owed <= lab.kept("agA"), "nothing is dropped"
    agent.start()
    assert lab.finish() == {"done": 3}
    assert owed <= {result.attempt_id for result in lab.view.results()}
