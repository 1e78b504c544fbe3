"""What every dispatcher does. The same messages travel over every link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from agent.wire.messages import ForAgent, ForOrchestrator
from orchestrator.errors import UnreachableError


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """What an agent said. Whoever carried it vouches for the name."""

    agent_id: str
    message: ForOrchestrator


@dataclass(frozen=True, slots=True)
class IncompatibleHello:
    """An agent of another protocol said hello: whatever else it says is not to be understood."""

    agent_id: str
    protocol: int


@dataclass(frozen=True, slots=True)
class AgentLost:
    """The link to the agent broke. Its attempts are in doubt until it is back, or for good."""

    reason: str


@dataclass(frozen=True, slots=True)
class BrokerBack:
    """The broker answers (again): what it held before may be gone."""


DispatchEvent: TypeAlias = MessageReceived | IncompatibleHello | AgentLost | BrokerBack


class BrokerDownError(UnreachableError):
    """The message was not sent; `BrokerBack` comes among the events once sending works again."""


class Dispatcher(Protocol):
    """Hands messages out and brings back what the agents say."""

    sole_agent: bool
    """There is one agent: a device that it does not name does not exist."""

    @property
    def fault(self) -> str:
        """Why nothing can be sent now; empty while all is well."""

    def send(self, agent_id: str, message: ForAgent) -> None:
        """Send a message to an agent. A link to a child that breaks shows as `AgentLost` among the events.

        Raises `BrokerDownError`.
        """

    def events(self, timeout_s: float) -> Sequence[DispatchEvent]:
        """What has come, after at most `timeout_s` seconds; returns at once when something has.

        The call says that everything returned before is stored: it is acknowledged now and will not come
        again. Raises `UnreachableError` where no agent can be had.
        """

    def close(self, grace_s: float = 20.0) -> Sequence[DispatchEvent]:
        """End the link; embedded: stop what runs, too. Returns the last words, within `grace_s` seconds."""
