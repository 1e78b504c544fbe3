"""Shows and forgets the references that agents made."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from agent.wire.reference import ReferenceRecord
from orchestrator.config.limits import size_text
from orchestrator.db.engine.sessions import Database
from orchestrator.db.results import references as stored_references
from orchestrator.errors import UsageError
from orchestrator.policy.shared_references import Claim, shared


@dataclass(frozen=True, slots=True)
class KnownReference:
    """A reference on which some agents agree. `handed_on`: the farm offers it to other agents."""

    record: ReferenceRecord
    agents: tuple[str, ...]
    handed_on: bool


@dataclass(frozen=True, slots=True)
class ModelReferences:
    """The references of one model, with the names that campaigns give to it."""

    model_sha256: str
    names: tuple[str, ...]
    references: tuple[KnownReference, ...]

    def lines(self) -> Iterator[str]:
        """Yield the lines that `farm db references` prints."""
        for known in self.references:
            record = known.record
            what = size_text(record.size_bytes) if record.sha256 else f"not made: {record.failure}"
            yield (
                f"{', '.join(self.names)}  {record.kind} of LiteRT {record.maker}  {what}  "
                f"by {', '.join(known.agents)}; {'handed on' if known.handed_on else 'not handed on'}"
            )

    def to_json(self) -> dict[str, object]:
        """Return the same as `lines`, for programs."""
        return {
            "model_sha256": self.model_sha256,
            "names": list(self.names),
            "references": [
                {
                    **known.record.model_dump(mode="json"),
                    "agents": list(known.agents),
                    "handed_on": known.handed_on,
                }
                for known in self.references
            ],
        }


def known(database: Database, model: str, agents: int) -> list[ModelReferences]:
    """Return the references of the models with this name or this beginning of their sha256; of all if empty.

    `agents`: how many must have made the same one. Raises `UsageError` where no campaign has such a model.
    """
    with database.read() as session:
        named = stored_references.models_named(session, model)
        found = stored_references.claims_of(session, named)
    if not named and model:
        raise UsageError(f"no campaign has a model {model!r}; farm db references lists those with references")
    by_model: dict[str, list[KnownReference]] = defaultdict(list)
    for entry in found:
        by_model[entry.model_sha256] += _known(entry.claims, agents)
    return [
        ModelReferences(sha256, tuple(names), tuple(by_model[sha256]))
        for sha256, names in named.items()
        # A model that was asked for is listed without references, too.
        if model or sha256 in by_model
    ]


def forget(database: Database, models: Sequence[ModelReferences]) -> None:
    """Forget the references of these models; agents use none that they made before."""
    with database.write() as turn:
        stored_references.forget(turn, [entry.model_sha256 for entry in models])


def _known(claims: Sequence[Claim], agents: int) -> list[KnownReference]:
    told = {(record.key, record.sha256) for record in shared(claims, agents)}

    def what(claim: Claim) -> tuple[str, str]:
        # A failure has no hash: the failures of a key are one group.
        return claim.record.key, claim.record.sha256 or ""

    found = []
    for _, group in groupby(sorted(claims, key=what), key=what):
        own = list(group)
        record = own[0].record
        who = tuple(sorted(claim.agent_id for claim in own))
        found.append(KnownReference(record, who, (record.key, record.sha256) in told))
    return found
