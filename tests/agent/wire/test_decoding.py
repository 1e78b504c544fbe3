"""A line becomes a message only where it is short, known and exact."""

from __future__ import annotations

import json

import pytest

from agent.wire.messages import (
    MAX_MESSAGE_BYTES,
    AgentAlive,
    CancelJob,
    Heartbeat,
    artifact_path,
    decode_for_agent,
    decode_for_orchestrator,
    encode,
    type_of,
)

ALIVE = AgentAlive(waiting=1)


def padded(size: int) -> bytes:
    line = encode(ALIVE).rstrip(b"\n")
    return line + b" " * (size - len(line))


@pytest.mark.parametrize("decode", [decode_for_agent, decode_for_orchestrator])
def test_a_message_beyond_the_limit_is_refused_before_it_is_parsed(decode):
    with pytest.raises(ValueError, match="the limit is"):
        decode(padded(MAX_MESSAGE_BYTES + 1))


def test_a_message_of_just_the_limit_is_read():
    assert decode_for_orchestrator(padded(MAX_MESSAGE_BYTES)) == ALIVE


def test_an_unknown_field_is_an_error():
    fields = json.loads(encode(ALIVE)) | {"more": 1}
    with pytest.raises(ValueError, match="more"):
        decode_for_orchestrator(json.dumps(fields).encode())


def test_a_number_that_is_none_is_an_error():
    job = b'{"type":"result","duration_ns":NaN}'
    with pytest.raises(ValueError, match="duration_ns"):
        decode_for_orchestrator(job)


@pytest.mark.parametrize("word", ["NaN", "Infinity"])
def test_a_limit_that_is_no_finite_number_is_an_error(word):
    with pytest.raises(ValueError, match=r"soft_limit_s\n.*finite"):
        decode_for_agent(f'{{"type":"job","soft_limit_s":{word}}}'.encode())


def test_a_message_for_the_other_side_is_none():
    with pytest.raises(ValueError, match="type"):
        decode_for_orchestrator(encode(CancelJob(attempt_id="a")))
    with pytest.raises(ValueError, match="type"):
        decode_for_agent(encode(ALIVE))


def test_the_type_of_a_line_is_its_own_field():
    beat = Heartbeat(attempt_id="a", epoch=1, seq=1, phase='{"type":"result"}')
    assert type_of(encode(beat)) == "heartbeat"


@pytest.mark.parametrize("line", [b"[]", b"7", b"{}", b'{"type":7}', b"nonsense", b'["type"]'])
def test_what_has_no_type_is_a_value_error(line):
    with pytest.raises(ValueError, match=r"."):
        type_of(line)


@pytest.mark.parametrize(
    "name", ["", "../" * 10, "A" * 64, "0" * 63, "0" * 65, "0" * 64 + "\n", "/" + "0" * 63]
)
def test_a_name_that_is_no_sha256_is_no_path(tmp_path, name):
    with pytest.raises(ValueError, match="not a sha256"):
        artifact_path(tmp_path, name)
