"""Reads a message whose sender is known; an unreadable message still yields as much as can be read."""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from agent.wire.bounded import MAX_SMALL, Id, Small, clean
from agent.wire.messages import PROTOCOL_VERSION, AgentHello, JobResult, decode_for_orchestrator
from orchestrator.dispatch.base import DispatchEvent, IncompatibleHello, MessageReceived, UnusableResult

_QUOTED_BYTES: Final = 100
"""Bytes of an unreadable message that its error quotes: its type is among the first."""
_WHY_CHARACTERS: Final = 500
"""Characters of the reason that go into a result: about the first three fields that are wrong."""
_RESULT: Final = JobResult.model_fields["type"].default
_HELLO: Final = AgentHello.model_fields["type"].default


class _Head(BaseModel):
    """The part of a result that says which attempt it ends."""

    model_config = ConfigDict(extra="ignore", strict=True)

    attempt_id: Id
    epoch: Small


def read(agent_id: str, payload: bytes) -> DispatchEvent:
    """Decode a message of this agent. Raises `ValueError` where nothing of use can be read.

    A hello of another protocol becomes `IncompatibleHello`; a result that is not valid becomes
    `UnusableResult`, because its agent would otherwise send it for ever.
    """
    try:
        message = decode_for_orchestrator(payload)
    except ValueError as error:
        return _unreadable(agent_id, payload, str(error))
    if isinstance(message, AgentHello):
        if message.agent_id != agent_id:
            raise ValueError(f"agent {agent_id} calls itself {message.agent_id}")
        if message.protocol != PROTOCOL_VERSION:
            return IncompatibleHello(agent_id, message.protocol)
    return MessageReceived(agent_id, message)


def _unreadable(agent_id: str, payload: bytes, why: str) -> DispatchEvent:
    fields: Any = json.loads(payload)
    kind = fields.get("type") if isinstance(fields, dict) else None
    if kind == _HELLO:
        protocol = fields.get("protocol")
        if type(protocol) is int and 0 <= protocol <= MAX_SMALL and protocol != PROTOCOL_VERSION:
            return IncompatibleHello(agent_id, protocol)
    if kind == _RESULT:
        return unusable_result(agent_id, payload, why)
    raise ValueError(f"agent {agent_id} sent something unreadable: {payload[:_QUOTED_BYTES]!r}: {why}")


def unusable_result(agent_id: str, payload: bytes, why: str) -> UnusableResult:
    """Return what ends the attempt of a result that is not valid. Raises `ValueError` for anything else."""
    fields: Any = json.loads(payload)
    if not isinstance(fields, dict) or fields.get("type") != _RESULT:
        raise ValueError("it is not a result")
    head = _Head.model_validate(fields)
    return UnusableResult(agent_id, head.attempt_id, head.epoch, clean(why)[:_WHY_CHARACTERS])
