"""What every dispatcher does. The same messages travel over every link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from agent.messages import AgentHello, Heartbeat, JobRefused, JobResult, JobSpec, JobStarted

Message: TypeAlias = AgentHello | JobStarted | JobRefused | Heartbeat | JobResult


@dataclass(frozen=True, slots=True)
class AgentLost:
    """The link to the agent broke. Its attempts are in doubt until it is back, or for good."""

    reason: str


DispatchEvent: TypeAlias = Message | AgentLost


class Dispatcher(Protocol):
    """Hands jobs out and brings back what the agents say."""

    sole_agent: bool
    """There is one agent: a device that it does not name does not exist."""

    def offer(self, job: JobSpec) -> None:
        """Send a job. A link that breaks shows as `AgentLost` among the events."""

    def cancel(self, attempt_id: str) -> None:
        """Ask for the end of an attempt; its result comes as any other."""

    def receipt(self, attempt_id: str) -> None:
        """Tell the agent that the result is stored."""

    def events(self, timeout_s: float) -> Sequence[DispatchEvent]:
        """What has come, after at most `timeout_s` seconds; returns at once when something has.

        Raises `UnreachableError` where no agent can be had.
        """

    def close(self, grace_s: float = 20.0) -> Sequence[DispatchEvent]:
        """Stop what runs and end the link; returns the last words, within `grace_s` seconds."""
