"""Defines the dispatchers' interface and their events, and reads messages as events."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict

from agent.wire import messages
from agent.wire.bounded import MAX_SMALL, Id, Small, clean
from orchestrator.errors import UnreachableError


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A message from an agent. The link has checked that it is this agent's."""

    agent_id: str
    message: messages.ForOrchestrator


@dataclass(frozen=True, slots=True)
class IncompatibleHello:
    """A hello from an agent that speaks another protocol; none of its other messages can be read."""

    agent_id: str
    protocol: int


@dataclass(frozen=True, slots=True)
class UnusableResult:
    """A result that cannot be read or stored. Its attempt ends as failed, and the agent gets its receipt: it
    would otherwise send the result again for ever, and the device would be busy until its deadline.
    """

    agent_id: str
    attempt_id: str
    epoch: int
    why: str


@dataclass(frozen=True, slots=True)
class AgentLost:
    """The link to the agent broke. The state of its attempts is unknown until it returns."""

    reason: str


@dataclass(frozen=True, slots=True)
class BrokerBack:
    """The broker answers for the first time or again; messages that it held before may be lost."""


DispatchEvent: TypeAlias = MessageReceived | IncompatibleHello | UnusableResult | AgentLost | BrokerBack


class BrokerDownError(UnreachableError):
    """The message was not sent; once sending works again, a `BrokerBack` is among the events."""


class Dispatcher(Protocol):
    """Sends messages to agents and returns theirs."""

    sole_agent: bool
    """True where there is one agent only: a device that it does not report does not exist."""

    @property
    def fault(self) -> str:
        """Why nothing can be sent now; empty while messages can be sent."""

    def send(self, agent_id: str, message: messages.ForAgent) -> None:
        """Send a message to an agent. A link to a child that breaks shows as `AgentLost` among the events.

        Raises `BrokerDownError`.
        """

    def events(self, timeout_s: float) -> Sequence[DispatchEvent]:
        """Return what has arrived, at once or after at most `timeout_s` seconds.

        Calling it states that everything returned before is stored: it is acknowledged now and is not
        delivered again. Raises `UnreachableError` where no agent can be reached.
        """

    def close(self, grace_s: float = 20.0) -> Sequence[DispatchEvent]:
        """End the link; an embedded agent stops its runners. Returns its last messages."""


_QUOTED_BYTES: Final = 100
"""Bytes of an unreadable message that its error quotes: its type is among the first."""
_WHY_CHARACTERS: Final = 500
"""Characters of the reason that go into a result: about the first three fields that are wrong."""
_RESULT: Final = messages.JobResult.model_fields["type"].default
_HELLO: Final = messages.AgentHello.model_fields["type"].default


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
        message = messages.decode_for_orchestrator(payload)
    except ValueError as error:
        return _unreadable(agent_id, payload, str(error))
    if isinstance(message, messages.AgentHello):
        if message.agent_id != agent_id:
            raise ValueError(f"agent {agent_id} calls itself {message.agent_id}")
        if message.protocol != messages.PROTOCOL_VERSION:
            return IncompatibleHello(agent_id, message.protocol)
    return MessageReceived(agent_id, message)


def _unreadable(agent_id: str, payload: bytes, why: str) -> DispatchEvent:
    fields: Any = json.loads(payload)
    kind = fields.get("type") if isinstance(fields, dict) else None
    # Of whatever form: another protocol may have other fields, and its number alone is looked at.
    if kind == _HELLO:
        protocol = fields.get("protocol")
        # Not `isinstance`, by which `true` is an integer too.
        if type(protocol) is int and 0 <= protocol <= MAX_SMALL and protocol != messages.PROTOCOL_VERSION:
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
