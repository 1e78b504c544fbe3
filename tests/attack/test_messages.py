"""Attacks by messages that an enrolled agent signs: right in form or not, and hostile in every case."""

from __future__ import annotations

import json
import time
import uuid

import pytest

from agent.wire.envelope import SigningKey, seal
from tests.attack.attacker import (
    all_is_handled,
    device,
    head,
    hello,
    introduce,
    nested,
    sender,
    signed,
    witness_is_heard,
)
from tests.attack.lab import PATIENCE_S, ROGUE, VICTIM

LONG = "x" * 10_000
NUL = "a\0\x1b[2J\x07\u202eb"
MARK = "taken-in"
"""Host of every hostile hello: no row of the database may have it, nor the devices of one."""


def about(attempt_id: str, kind: str, **fields: object) -> dict[str, object]:
    """Build a message about an attempt."""
    return {"type": kind, "attempt_id": attempt_id, "epoch": 1} | fields


def result(attempt_id: str, **fields: object) -> dict[str, object]:
    own = {"cell_id": "c", "device_id": f"{ROGUE}.cpu", "status": "done"}
    return about(attempt_id, "result", **(own | fields))


def marked(**fields: object) -> dict[str, object]:
    return hello(ROGUE, host=MARK, **fields)


REFUSED = {
    "20,000 devices": marked(devices=[device(ROGUE, f"d{n}") for n in range(20_000)]),
    "a device with an id of 10,000 characters": marked(devices=[device(ROGUE, LONG)]),
    "10,000 labels": marked(devices=[device(ROGUE) | {"labels": {f"k{n}": "v" for n in range(10_000)}}]),
    "another agent's device": marked(devices=[device(VICTIM, "host-cpu")]),
    "a device of no agent": marked(devices=[device(ROGUE) | {"device_id": "host-cpu"}]),
    "another agent's name": hello(VICTIM, host=MARK),
    "a name with NUL": hello(f"{ROGUE}\0", host=MARK),
    "a protocol of 2**70": marked(protocol=2**70),
    "a protocol of minus one": marked(protocol=-1),
    "an epoch of 2**70": marked(epochs={f"{ROGUE}.cpu": 2**70}),
    "20,000 epochs": marked(epochs={f"{ROGUE}.d{n}": 1 for n in range(20_000)}),
    "20,000 live attempts": marked(live=[str(uuid.uuid4()) for _ in range(20_000)]),
    "text for a list": marked(devices="x"),
    "a list for text": hello(ROGUE, host=[MARK]),
    "a field that is not known": marked(surprise=1),
    "a device of an unknown kind": marked(devices=[device(ROGUE) | {"kind": "quantum"}]),
}
"""Hellos of which nothing may be stored."""
TRIMMED = {
    "a host of a megabyte": hello(ROGUE, host="x" * 1_000_000, version="x" * 1_000_000),
    "a device with a name of a megabyte": hello(ROGUE, devices=[device(ROGUE, "d", name="x" * 1_000_000)]),
    "a field of an environment of a megabyte": hello(
        ROGUE, devices=[device(ROGUE, "d", environment={"cpu": "x" * 1_000_000})]
    ),
    "the same device twice": hello(ROGUE, devices=[device(ROGUE, "d"), device(ROGUE, "d")]),
    "NUL and escapes in every text": hello(
        ROGUE, host=NUL, version=NUL, devices=[device(ROGUE, "d", labels={NUL: NUL}) | {"name": NUL}]
    ),
}
"""Hellos that are taken in, with their texts clean and within bounds."""
HARMLESS = {
    "surrogates": [hello(ROGUE, host="\ud800", version="\udfff")],
    "an attempt that does not exist": [
        about("none", kind, **more)
        for kind, more in (
            ("started", {}),
            ("heartbeat", {"seq": 1, "phase": "x"}),
            ("output", {"start": 0, "text": "x"}),
            ("refused", {"reason": {"code": "crash", "text": "x"}}),
        )
    ]
    + [result("none")],
    "an attempt with NUL in its name": [about(NUL, "started"), result(NUL), result(NUL, log_tail=NUL)],
    "an attempt with a name of 10,000 characters": [result(LONG)],
    "numbers out of range": [
        about("x", "heartbeat", seq=2**70, phase="x"),
        about("x", "output", start=2**70, text="x"),
        about("x", "output", start=-1, text="x"),
        result("x", duration_ns=2**70),
        result("x", epoch=2**70),
        result("x", epoch=-(2**70)),
        {"type": "alive", "waiting": 2**70},
        {"type": "alive", "waiting": -1},
    ],
    "texts out of bounds": [
        about("x", "heartbeat", seq=1, phase="x" * 1_000_000),
        about("x", "output", start=0, text="x" * 1_000_000),
        result("x", log_tail="x" * 3_000_000),
        result("x", facts={"k": "x" * 1_000_000}),
        result("x", facts={f"k{n}": "v" for n in range(20_000)}),
        about("x", "refused", reason={"code": "crash", "text": "x" * 1_000_000}),
    ],
    "other types": [{"type": kind} for kind in ("job", "receipt", "shutdown", "farm-keys", "", "__class__")]
    + [{"type": 7}, {"type": None}, {"type": ["hello"]}, {}],
}
"""Messages that must change nothing for anybody else."""


@pytest.fixture
def rogue(lab):
    """Of whom the farm knows nothing but a hello without devices."""
    with sender(lab, ROGUE) as made:
        introduce(lab, made)
        yield made


def taken_in(lab) -> list:
    """Of a hello that must be refused: what is in the database."""
    return lab.rows(
        f"SELECT agent_id, host FROM agent WHERE host = '{MARK}' UNION SELECT device_id, name FROM device "
        f"WHERE device_id LIKE '{ROGUE}%' AND device_id <> '{ROGUE}.d'"
    )


def devices_of_others(lab) -> list:
    return lab.rows(
        f"SELECT device_id, agent_id, epoch FROM device WHERE agent_id <> '{ROGUE}' ORDER BY device_id"
    )


def cells(lab) -> list:
    return lab.rows("SELECT cell_id, state FROM cell ORDER BY cell_id")


def test_hellos_of_any_size_or_content(lab, rogue):
    """No such hello is stored, not even in part, and nobody else's devices change."""
    before = devices_of_others(lab)
    for form, message in REFUSED.items():
        rogue.say(message)
        all_is_handled(lab, rogue)
        assert taken_in(lab) == [], form
    assert devices_of_others(lab) == before


def test_texts_of_any_size_or_content(lab, rogue):
    """The stored form of such texts is short, and holds no character that a terminal obeys."""
    rogue.say(*TRIMMED.values())
    all_is_handled(lab, rogue)
    stored = lab.rows(f"SELECT host, version FROM agent WHERE agent_id = '{ROGUE}'")
    stored += lab.rows(f"SELECT name, labels::text FROM device WHERE device_id LIKE '{ROGUE}%'")
    texts = [text for row in stored for text in row]
    assert len(texts) >= 4
    assert max(map(len, texts)) < 20_000
    assert not [text for text in texts if {"\0", "\x1b", "\x07"} & set(text)]
    told = lab.call("lab", "agents", "list").stdout + lab.call("devices").stdout
    assert not {"\x1b", "\x07"} & set(told)


@pytest.mark.attack
@pytest.mark.parametrize("form", [*REFUSED, *TRIMMED])
def test_one_hostile_hello(lab, rogue, form):
    """The lab measures a model after it."""
    rogue.say((REFUSED | TRIMMED)[form])
    all_is_handled(lab, rogue)
    assert form in TRIMMED or taken_in(lab) == []
    lab.measure()


def test_words_about_attempts_that_are_not_there(lab, rogue):
    """Numbers, names and texts of any kind change no cell, and stop nothing."""
    before = cells(lab)
    for messages in HARMLESS.values():
        rogue.say(*messages)
    all_is_handled(lab, rogue)
    assert cells(lab) == before
    assert lab.serve.running


@pytest.mark.attack
@pytest.mark.parametrize("form", HARMLESS)
def test_one_hostile_message(lab, rogue, form):
    """It changes nothing, and the lab measures a model."""
    before = cells(lab)
    rogue.say(*HARMLESS[form])
    all_is_handled(lab, rogue)
    assert cells(lab) == before
    lab.measure()


def bodies(key: SigningKey) -> dict[str, str]:
    """Envelopes whose signature is right and whose body is not."""
    good = hello(ROGUE, host=MARK)
    text = json.dumps(head(ROGUE, good))

    def changed(**fields: object) -> str:
        return json.dumps(head(ROGUE, good, **fields))

    made = {
        "NaN": text.replace('"v": 1', '"v": NaN'),
        "infinity in the payload": json.dumps(head(ROGUE, good | {"protocol": float("inf")})),
        "deep in the payload": text.replace('"devices": []', f'"devices": {nested(100_000)}'),
        "deep objects": text.replace('"devices": []', f'"devices": {nested(100_000, "object")}'),
        "40 levels": text.replace('"devices": []', f'"devices": {nested(40)}'),
        "another agent's name": changed(agent_id=VICTIM),
        "no nonce": changed(nonce=None),
        "a short nonce": changed(nonce="x"),
        "a number for a nonce": changed(nonce=1),
        "expired": changed(issued=1.0, expires=86_401.0),
        "valid for years": changed(expires=time.time() + 1e9),
        "expires before it is issued": changed(expires=1.0),
        "from the year 5138": changed(issued=2e11, expires=2e11),
        "issued at true": changed(issued=True),
        "another version": changed(v=2),
        "another kind": changed(kind="alive"),
        "a payload of text": changed(payload=json.dumps(good)),
        "a field more": changed(admin=True),
        "an attempt in the head alone": changed(attempt_id="x"),
        "a million keys of the farm": changed(farm=" ".join(["f" * 16] * 1_000_000)),
        "a number of 10,000 digits": text.replace('"v": 1', '"v": ' + "1" * 10_000),
        "an exponent": text.replace('"v": 1', '"v": 1e999999999'),
        "not an object": "[]",
        "nothing": "",
    }
    return {name: signed(key, body) for name, body in made.items()}


def forgeries(key: SigningKey) -> dict[str, str]:
    """Envelopes whose signature is not that of the agent that they name."""
    genuine = seal(key, ROGUE, json.dumps(hello(ROGUE, host=MARK)).encode(), time.time())
    version, key_id, signature, body = genuine.split(".", 3)
    other = SigningKey.new()
    return {
        "another key": signed(other, body),
        "another key under this one's id": signed(other, body).replace(other.public.key_id, key_id),
        "no signature": f"{version}.{key_id}..{body}",
        "zeros": f"{version}.{key_id}.{'A' * 86}.{body}",
        "another body": genuine.replace(MARK, f"{MARK}!"),
        "a blank more": f"{genuine} ",
        "another version": f"2.{key_id}.{signature}.{body}",
        "an id of no key": f"{version}.{'0' * 16}.{signature}.{body}",
        "letters beyond ASCII": f"{version}.{key_id}.{signature}.{body}\u00e9",
    }


def test_bodies_of_no_form_under_a_right_signature(lab, rogue):
    """Refused as a whole."""
    rogue.envelopes(*bodies(rogue.key).values())
    all_is_handled(lab, rogue)
    assert taken_in(lab) == []


def test_forged_signatures(lab, rogue):
    """Refused before anything is parsed."""
    rogue.envelopes(*forgeries(rogue.key).values())
    all_is_handled(lab, rogue)
    assert taken_in(lab) == []


def test_a_replayed_message(lab, rogue):
    """It counts once: what came after it is not undone."""
    old = seal(rogue.key, ROGUE, json.dumps(hello(ROGUE, host="old")).encode(), time.time())
    host = f"SELECT 1 FROM agent WHERE agent_id = '{ROGUE}' AND host = "
    rogue.envelopes(old)
    lab.within(PATIENCE_S, lambda: lab.rows(host + "'old'"), "the first hello is applied")
    rogue.say(hello(ROGUE, host="new"))
    lab.within(PATIENCE_S, lambda: lab.rows(host + "'new'"), "the second hello is applied")
    rogue.envelopes(old, old)
    all_is_handled(lab, rogue)
    assert lab.rows(host + "'new'")


@pytest.mark.attack
def test_words_about_another_agents_attempt_while_it_runs(lab, rogue):
    """Neither its end, nor its text, nor its life is changed by an agent that does not run it."""
    submitting = lab.begin(seconds=6.0)
    # Both agents have a cell of it, and one runs: they share the silicon of this host.
    attempt_id, cell_id, device_id, epoch = lab.rows(
        "SELECT attempt_id, cell_id, device_id, epoch FROM attempt WHERE state = 'running'"
    )[0]
    own = {"attempt_id": attempt_id, "epoch": epoch}
    rogue.say(
        result(attempt_id, cell_id=cell_id, device_id=device_id, epoch=epoch),
        result(attempt_id, cell_id=cell_id, device_id=device_id, epoch=epoch, status="failed"),
        about(attempt_id, "refused", reason={"code": "crash", "text": "x"}) | own,
        about(attempt_id, "heartbeat", seq=1, phase=MARK) | own,
        about(attempt_id, "output", start=0, text=MARK) | own,
        hello(ROGUE, live=[attempt_id]),
    )
    all_is_handled(lab, rogue)
    (found,) = lab.rows(f"SELECT state FROM attempt WHERE attempt_id = '{attempt_id}'")
    assert found[0] == "running"
    submitting.end()
    (found,) = lab.rows(f"SELECT state FROM attempt WHERE attempt_id = '{attempt_id}'")
    assert found[0] == "done"
    assert MARK not in lab.call("show", "--logs", cell_id).stdout


@pytest.mark.attack
@pytest.mark.parametrize("kind", ["alive", "heartbeat", "hello"])
def test_a_flood_of_signed_messages(lab, rogue, kind):
    """5,000 of them delay no good message beyond what is promised, and the lab measures a model."""
    made = {
        "alive": {"type": "alive", "waiting": 1},
        "heartbeat": about("none", "heartbeat", seq=1, phase="x"),
        "hello": hello(ROGUE),
    }
    rogue.say(*[made[kind]] * 5_000)
    witness_is_heard(lab, 30)
    lab.measure()


@pytest.mark.attack
def test_a_model_is_measured_after_all_of_this(lab):
    """The lab does what it is there for."""
    lab.measure()
