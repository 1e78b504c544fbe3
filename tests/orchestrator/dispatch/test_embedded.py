from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from agent.wire.messages import AgentHello, Heartbeat, JobSpec, encode
from orchestrator.dispatch.base import AgentLost, MessageReceived
from orchestrator.dispatch.embedded import MAX_STARTS, EmbeddedDispatcher
from orchestrator.errors import UnreachableError

JOB = JobSpec(
    attempt_id="a1", attempt_no=1, cell_id="c1", epoch=1, device_id="host-cpu", model_id="m",
    model_sha256="0" * 64, model_bytes=1, delegate="cpu", delegate_kind="cpu",
)  # fmt: skip
HELLO = AgentHello(agent_id="x", host="h", version="0", devices=())
LINK = "import os, socket, sys, time; s = socket.socket(fileno=int(sys.argv[sys.argv.index('--fd') + 1])); "


@pytest.fixture
def agent(tmp_path):
    """Return a starter of a dispatcher whose agent is a line of Python with `s`, its end of the link."""
    made = []

    def start(code, **options):
        script = tmp_path / "agent.py"
        script.write_text(LINK + code)
        made.append(EmbeddedDispatcher([sys.executable, str(script)], tmp_path / "agent.log", **options))
        return made[-1]

    yield start
    for dispatcher in made:
        dispatcher.close(grace_s=0.1)


def gather(dispatcher, count, limit_s=60.0):
    until = time.monotonic() + limit_s
    found = []
    while len(found) < count and time.monotonic() < until:
        found += map(said, dispatcher.events(0.1))
    return found


def said(event):
    """Return the agent's message, or the event that befell it."""
    return event.message if isinstance(event, MessageReceived) else event


def test_messages_split_and_joined_on_the_way_arrive_whole(agent):
    beat = Heartbeat(attempt_id="a1", epoch=1, seq=1, phase="x" * 70_000)
    data = encode(HELLO) + encode(beat) + encode(beat)
    dispatcher = agent(f"d = {data!r}; s.sendall(d[:50]); time.sleep(0.2); s.sendall(d[50:]); s.recv(100)")
    assert gather(dispatcher, 3) == [HELLO, beat, beat]


def test_an_agent_that_speaks_another_protocol_is_refused_with_what_to_do(agent):
    data = encode(HELLO.model_copy(update={"protocol": 99}))
    dispatcher = agent(f"s.sendall({data!r}); s.recv(100)")
    with pytest.raises(UnreachableError, match=r"protocol 99.*install the same version"):
        gather(dispatcher, 1)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"garbage\n", "unreadable"),
        (b'{"type": "hello", "surprise": 1}\n', "unreadable"),
        (b"x" * 5_000_000, "without a line end"),
    ],
    ids=["no-json", "unknown-field", "endless-line"],
)
def test_an_agent_that_talks_nonsense_is_lost_not_believed(agent, data, text):
    dispatcher = agent(f"s.sendall({data!r}); s.recv(9)")
    (lost,) = gather(dispatcher, 1)[:1]
    assert isinstance(lost, AgentLost)
    assert text in lost.reason


def test_an_agent_that_always_dies_is_given_up_with_the_end_of_its_log(agent, tmp_path):
    dispatcher = agent("sys.exit('the journal is broken')")
    with pytest.raises(UnreachableError, match=f"ended {MAX_STARTS} times.*\n.*the journal is broken"):
        gather(dispatcher, MAX_STARTS + 1)


def test_a_killed_agent_is_named_by_its_signal_and_replaced(agent):
    dispatcher = agent(f"s.sendall({encode(HELLO)!r}); s.recv(100); time.sleep(60)")
    assert gather(dispatcher, 1) == [HELLO]
    first = dispatcher.pid
    os.kill(first, signal.SIGKILL)
    assert gather(dispatcher, 2) == [AgentLost("killed by SIGKILL"), HELLO]
    assert dispatcher.pid != first


def test_a_stopped_agent_is_noticed_by_its_silence(agent):
    dispatcher = agent(f"s.sendall({encode(HELLO)!r}); time.sleep(600)")
    assert gather(dispatcher, 1) == [HELLO]
    dispatcher._silence_limit_s = 0.3  # not before: until its hello, an agent starts in silence
    assert dispatcher.events(0.5) == [], "an idle agent owes no word"
    os.kill(dispatcher.pid, signal.SIGSTOP)
    dispatcher.send("x", JOB)
    assert gather(dispatcher, 1)[0] == AgentLost("it sent nothing for 0.3 s")


def test_an_agent_that_ignores_shutdown_is_killed_after_the_grace(agent):
    dispatcher = agent(f"s.sendall({encode(HELLO)!r}); time.sleep(600)")
    gather(dispatcher, 1)
    dispatcher.close(grace_s=0.3)
    with pytest.raises(ProcessLookupError):
        os.kill(dispatcher.pid, 0)


def test_last_words_after_shutdown_are_heard(agent):
    beat = Heartbeat(attempt_id="a1", epoch=1, seq=1, phase="stopping")
    dispatcher = agent(f"s.sendall({encode(HELLO)!r}); s.recv(100); s.sendall({encode(beat)!r})")
    gather(dispatcher, 1)
    assert dispatcher.close() == [MessageReceived("x", beat)]


def test_an_agent_that_cannot_be_started_is_one_clear_error(tmp_path):
    with pytest.raises(UnreachableError, match="cannot be started"):
        EmbeddedDispatcher([str(tmp_path / "no-such-program")], tmp_path / "agent.log")
