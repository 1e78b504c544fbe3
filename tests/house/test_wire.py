"""Whoever changes a field that crosses the wire raises the number by which both ends see that they differ."""

from __future__ import annotations

import hashlib
import json
from typing import Any, get_args

from pydantic.json_schema import models_json_schema

from agent.attempt.files import AttemptFile
from agent.runner.channel import Answer, Order
from agent.runner.passes.process_frame import pass_of
from agent.wire.messages import PROTOCOL_VERSION, ForAgent, ForOrchestrator
from agent.wire.passes import PASSES

RECORDED = (17, "fb02d77125da387d")
"""`PROTOCOL_VERSION`, and the digest of the schemas of that version."""


def digest() -> str:
    """Return a digest of what agent and farm, and an agent's processes, write to one another."""
    reports = [pass_of(name).report for name in ("labelled", *(one.name for one in PASSES))]
    models = (*get_args(ForAgent), *get_args(ForOrchestrator), AttemptFile, Order, Answer, *reports)
    _, schema = models_json_schema([(model, "validation") for model in models])
    return hashlib.sha256(json.dumps(_without_prose(schema), sort_keys=True).encode()).hexdigest()[:16]


def _without_prose(schema: Any) -> Any:
    """Return a schema without the texts that say what a field is."""
    if isinstance(schema, dict):
        prose = {name for name in ("title", "description") if isinstance(schema.get(name), str)}
        return {name: _without_prose(value) for name, value in schema.items() if name not in prose}
    return [_without_prose(item) for item in schema] if isinstance(schema, list) else schema


def test_a_changed_field_of_the_wire_has_a_new_protocol_version():
    found = digest()
    after = max(PROTOCOL_VERSION, RECORDED[0] + (found != RECORDED[1]))
    assert (PROTOCOL_VERSION, found) == RECORDED, (
        f'set PROTOCOL_VERSION in agent/wire/messages.py to {after}, and here RECORDED = ({after}, "{found}")'
    )
