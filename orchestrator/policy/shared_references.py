"""Decides which references of a farm's agents are offered to the other agents.

An agent speaks for its own attempts alone, and a false reference would decide over those of others. The
kernels are deterministic: what two agents made independently, bit for bit, is what they compute.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from agent.wire.reference import ReferenceRecord


@dataclass(frozen=True, slots=True)
class Claim:
    """One agent's claim about a reference. `trusted`: the agent is the farm's own child."""

    agent_id: str
    made_at: datetime
    trusted: bool
    record: ReferenceRecord


def shared(claims: Iterable[Claim], agents: int) -> list[ReferenceRecord]:
    """Return what the farm tells of each key, the newest first.

    A file needs `agents` agents that made the same, or one that is trusted; where two different files have
    that, none is told of. A failure needs as many, and that no agent made a file.
    """
    by_key: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_key[claim.record.key].append(claim)
    found = [(max(c.made_at for c in own), told) for own in by_key.values() if (told := _of_key(own, agents))]
    return [told for _, told in sorted(found, key=lambda pair: (pair[0], pair[1].key), reverse=True)]


def _of_key(claims: Sequence[Claim], agents: int) -> ReferenceRecord | None:
    files: dict[tuple[str | None, int], list[Claim]] = defaultdict(list)
    failed = []
    for claim in claims:
        if claim.record.sha256 is None:
            failed.append(claim)
        else:
            files[claim.record.sha256, claim.record.size_bytes].append(claim)
    if files:
        agreed = [own for own in files.values() if _is_enough(own, agents)]
        return agreed[0][0].record if len(agreed) == 1 else None
    if not _is_enough(failed, agents):
        return None
    # Every one of them has waited for so long: an attempt that gives more time is to try again.
    limit_s = min(claim.record.limit_s for claim in failed)
    first = min(failed, key=lambda claim: claim.made_at)
    return first.record.model_copy(update={"limit_s": limit_s})


def _is_enough(claims: Sequence[Claim], agents: int) -> bool:
    # By agents, not claims: one agent must not count several times.
    return any(claim.trusted for claim in claims) or len({claim.agent_id for claim in claims}) >= agents
