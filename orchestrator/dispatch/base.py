"""The interface of every dispatcher, and the events that it returns; every link carries the same messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from agent.wire.messages import ForAgent, ForOrchestrator
from orchestrator.errors import UnreachableError


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A message from an agent. The link has checked that it is this agent's."""

    agent_id: str
    message: ForOrchestrator


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

    def send(self, agent_id: str, message: ForAgent) -> None:
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
