"""Attacks on an agent: by whoever owns the broker, and by a farm whose key is stolen."""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from agent.wire.envelope import SigningKey, keys_message, seal
from tests.attack.attacker import for_agent, head, nested, signed, to_agent, wrapped
from tests.attack.lab import NEIGHBOUR, PATIENCE_S, ROGUE, VICTIM
from tests.attack.test_broker import MALFORMED

DEVICE = f"{VICTIM}.host-cpu"
SHA = "5" * 64


def job(**changes: object) -> dict[str, object]:
    """Build a job of the farm for a device of the agent."""
    name = str(uuid.uuid4())
    fields = {
        "type": "job",
        "attempt_id": name,
        "attempt_no": 1,
        "cell_id": "cell",
        "epoch": 1_000_000,
        "device_id": DEVICE,
        "model_id": "m",
        "model_sha256": SHA,
        "model_bytes": 10,
        "delegate": "cpu",
        "delegate_kind": "cpu",
    }
    return fields | changes


@pytest.fixture(scope="module")
def farm_key(lab):
    """Return the farm's own key, with which jobs are signed."""
    return SigningKey.read((lab.home / "keys" / "farm.key").read_text().strip())


@pytest.fixture
def runs(lab):
    """Return a counter of the agent's runs: no attack may add one."""
    log = lab.state / "runs.log"

    def lines() -> int:
        return len(log.read_text().splitlines()) if log.exists() else 0

    return lines


def deliver(lab, *envelopes: object) -> None:
    """Into the agent's queue; returns when it has taken all of them."""
    to_agent(lab, VICTIM, *(for_agent(VICTIM, envelope) for envelope in envelopes))
    taken(lab)


def taken(lab) -> None:
    with lab.as_admin() as admin:
        jobs = f"farm:agent.{VICTIM}.jobs"
        lab.within(PATIENCE_S, lambda: not admin.llen(jobs), "the agent takes what is sent")


def sealed(key: SigningKey, message: dict[str, object], to: str = VICTIM) -> str:
    return seal(key, to, json.dumps(message).encode(), time.time())


def journaled(lab) -> list:
    """Names of jobs that the agent accepted."""
    with closing(sqlite3.connect(f"file:{lab.state / 'journal.db'}?mode=ro", uri=True)) as journal:
        return sorted(journal.execute("SELECT attempt_id FROM attempt").fetchall())


@pytest.mark.slow
def test_jobs_that_the_farm_did_not_sign(lab, farm_key, runs):
    """No such job runs: no unsigned one, and none of another key, another agent, or another time."""
    other, ran, known = SigningKey.new(), runs(), journaled(lab)
    genuine = sealed(farm_key, job())
    version, key_id, _, body = genuine.split(".", 3)
    now = time.time()
    deliver(
        lab,
        json.dumps(job()),
        json.dumps(head(VICTIM, job())),
        f"{version}.{key_id}..{body}",
        f"{version}.{key_id}.{'A' * 86}.{body}",
        genuine.replace('"cell"', '"cel1"'),
        sealed(other, job()),
        sealed(other, job()).replace(other.public.key_id, key_id),
        sealed(SigningKey.read(lab.credentials_of(ROGUE).signing_key), job()),
        sealed(farm_key, job(), to=NEIGHBOUR),
        signed(farm_key, json.dumps(head(VICTIM, job(), issued=1.0, expires=86_401.0))),
        signed(farm_key, json.dumps(head(VICTIM, job(), nonce="x"))),
        signed(farm_key, json.dumps(head(VICTIM, job()))[:-1]),
        signed(farm_key, nested(100_000)),
        seal(other, VICTIM, keys_message([other.public]), time.time()),
        signed(other, json.dumps(head(VICTIM, job(), issued=now, expires=now + 60))),
        sealed(other, {"type": "shutdown"}),
        sealed(other, {"type": "upgrade", "protocol": 9, "command": "touch /tmp/owned"}),
    )
    lab.measure()
    assert lab.agent.running
    new = [name for (name,) in set(journaled(lab)) - set(known)]
    assert len(new) == 1, "the honest model's attempt alone"
    assert runs() > ran


@pytest.mark.attack
@pytest.mark.parametrize("form", MALFORMED)
def test_one_message_of_no_form_in_an_agents_queue(lab, form):
    """The link drops it, or ends and is started again without it; the agent goes on."""
    to_agent(lab, VICTIM, MALFORMED[form], wrapped(b"{}"))
    taken(lab)
    lab.measure()
    assert lab.agent.running


STRANGE = {
    "a path for a name": job(attempt_id="../../../tmp/owned"),
    "an absolute path for a name": job(attempt_id="/tmp/owned"),
    "NUL in a name": job(attempt_id="a\0b"),
    "a name of 10,000 characters": job(attempt_id="x" * 10_000),
    "an empty name": job(attempt_id=""),
    "a name of dots": job(attempt_id=".."),
    "a path for a hash": job(model_sha256="../../etc/passwd"),
    "a model of 2**60 bytes": job(model_bytes=2**60),
    "a negative size": job(model_bytes=-1),
    "another agent's device": job(device_id=f"{NEIGHBOUR}.host-cpu"),
    "an epoch of 2**70": job(epoch=2**70),
    "an old epoch": job(epoch=0),
    "a delegate of the attacker's": job(delegate_kind="os:system"),
    "10,000 options": job(delegate_options={f"k{n}": "v" for n in range(10_000)}),
    "an input of 2**60 values": job(inputs={"x": {"shape": [2**30, 2**30]}}),
    "a field that is not known": job(command="touch /tmp/owned"),
    "limits that are no numbers": job(soft_limit_s="x"),
    "a million blocks": job(plan={"max_blocks": 1_000_000}),
    "nothing but a type": {"type": "job"},
    "another type": {"type": "run", "command": "touch /tmp/owned"},
    "a receipt for what is not there": {"type": "receipt", "attempt_id": "../x"},
    "a cancel for what is not there": {"type": "cancel", "attempt_id": "../x"},
}
"""What a farm whose key was stolen may send: a name, a size or a number that means harm."""


@pytest.mark.slow
def test_jobs_of_a_stolen_key_that_name_paths_or_sizes(lab, farm_key):
    """Each is refused or dropped; no file appears outside the agent's folders, and the agent goes on."""
    deliver(lab, *(sealed(farm_key, message) for message in STRANGE.values()))
    lab.measure()  # its job is behind them in the agent's queue
    assert not [name for name in ("/tmp/owned", "/tmp/x") if Path(name).exists()]
    outside = [p for p in lab.folder.iterdir() if p.name not in known_names(lab)]
    assert outside == []
    assert lab.agent.running


def known_names(lab) -> set[str]:
    """Of what the lab itself keeps in its folder."""
    own = {"home", "agent", NEIGHBOUR, "redis", "leases", "models.yaml", "serve.log", "agent.log"}
    own |= {f"{NEIGHBOUR}.log", "submit.log", "small.tflite", "127.0.0.1.pem", "127.0.0.1.key"}
    return own | {p.name for p in lab.folder.glob("*.tflite")} | {p.name for p in lab.folder.glob("*.pem")}


@pytest.mark.attack
@pytest.mark.parametrize("form", STRANGE)
def test_one_job_of_a_stolen_key(lab, farm_key, form):
    """The agent goes on."""
    deliver(lab, sealed(farm_key, STRANGE[form]))
    lab.measure()
    assert lab.agent.running


@pytest.mark.attack
def test_a_flood_in_an_agents_queue(lab, farm_key):
    """20,000 messages of garbage and one of 100 MB: a job behind them runs."""
    to_agent(lab, VICTIM, *(for_agent(VICTIM, f"1.{number}.x.y") for number in range(20_000)))
    to_agent(lab, VICTIM, for_agent(VICTIM, "x" * 100_000_000))
    lab.measure()
    assert lab.agent.running
