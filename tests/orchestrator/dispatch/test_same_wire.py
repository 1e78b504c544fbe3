"""Both floors use one set of names, forms and limits for the broker: those of `agent.wire.queue`."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest

import agent.link.broker
import agent.link.relay
import agent.wire.envelope
import orchestrator.dispatch.broker
import orchestrator.dispatch.lab
import orchestrator.trust.acl
from agent.link.broker import AgentBroker
from agent.wire import queue

ROOT = Path(queue.__file__).parents[2]
USERS = (
    agent.link.broker,
    agent.link.relay,
    agent.wire.envelope,
    orchestrator.dispatch.broker,
    orchestrator.dispatch.lab,
    orchestrator.trust.acl,
)
WORDS = {
    queue.MESSAGE_TASK,
    queue.INGEST_TASK,
    queue.INGEST_UNACKED_KEY,
    "callbacks",
    "visibility_timeout",
    "global_keyprefix",
}


@pytest.mark.parametrize("module", USERS, ids=lambda module: module.__name__)
def test_an_end_uses_the_objects_of_the_wire(module: ModuleType) -> None:
    defined = {name for name in _defined(Path(queue.__file__)) if not name.startswith("_")}
    shared = [name for name in defined if name in vars(module)]
    assert [name for name in shared if getattr(module, name) is not getattr(queue, name)] == []
    assert [name for name in shared if name in _defined(Path(str(module.__file__)))] == []
    assert shared or queue in vars(module).values()


def _defined(path: Path) -> set[str]:
    """Names that a module binds itself, other than by an import."""
    body = ast.parse(path.read_text()).body
    names = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names |= {
        node.target.id
        for node in body
        if isinstance(node, ast.AnnAssign)
        if isinstance(node.target, ast.Name)
    }
    return names


@pytest.mark.parametrize("folder", ["agent", "orchestrator"])
def test_the_words_on_the_wire_are_written_once(folder: str) -> None:
    found = {
        (path.relative_to(ROOT), node.value)
        for path in (ROOT / folder).rglob("*.py")
        if path != Path(queue.__file__)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in WORDS
    }
    assert found == set()


def test_names_and_options_on_the_wire_stay_as_released_agents_know_them() -> None:
    assert (queue.MESSAGE_TASK, queue.INGEST_TASK) == ("farm.message", "farm.ingest")
    broker = AgentBroker("rack-1", "redis://127.0.0.1:1/0")
    assert broker.queue == "agent.rack-1.jobs"
    assert broker.ingest_queue == "agent.rack-1.ingest"
    options = broker.transport_options()
    farm = queue.farm_options("farm:")
    assert options.pop("ack_emulation") is False
    assert not any("unacked" in name for name in options)
    assert {name: farm[name] for name in farm if name not in options} == {
        "visibility_timeout": 300,
        "unacked_key": "ingest.unacked",
        "unacked_index_key": "ingest.unacked_index",
        "unacked_mutex_key": "ingest.unacked_mutex",
    }
    assert {name: farm[name] for name in options} == options


def test_a_published_message_has_the_form_of_a_celery_call() -> None:
    class Recorder:
        def publish(self, body: object, **properties: object) -> None:
            self.sent = body, properties

    recorder = Recorder()
    queue.publish(recorder, queue.INGEST_TASK, queue.ingest_queue("rack"), "1.envelope")
    body, properties = recorder.sent
    assert body == [["1.envelope"], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
    headers = properties["headers"]
    assert isinstance(headers, dict)
    assert headers["task"] == "farm.ingest"
    assert headers["id"] == headers["root_id"] == properties["correlation_id"]
    assert (properties["exchange"], properties["routing_key"]) == ("", "agent.rack.ingest")
