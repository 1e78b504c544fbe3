"""The farm's record of a reference: outputs by which others are judged, or why none could be made."""

import hashlib
import json
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from pydantic import BaseModel, Field

from agent.wire.bounded import Count, Id, Sha256, Text, Wire

MAX_MADE: Final = 10
"""Most references that an attempt makes: one of each kind."""
MAX_KNOWN: Final = 64
"""Most references that a job names. A farm knows up to nine for each release of LiteRT and each architecture;
with more of them the newest are named, and an agent makes the others itself."""

Kind: TypeAlias = Literal[
    "reference", "xnnpack", "cpu", "builtin", "threads", "moved", "fp16", "fp16_scaled", "bf16", "bf16_scaled"
]  # fmt: skip
"""What computed a reference, as `runtime.measure.reference.ReferenceKind`."""

OWN_KIND: Final = "cpu"
"""The kind that stays on the agent that made it: our own kernels are exact on no two processors alike."""


class ReferenceRecord(Wire):
    """The outcome of making one reference.

    `key` is the hash of everything that its values depend on; `maker` is the part of it that the job does not
    tell, LiteRT's version and the architecture. `sha256` and `size_bytes` are those of the file; without one,
    `failure` says why it could not be made within `limit_s` seconds, and that another try would end alike.
    """

    key: Sha256
    kind: Kind
    maker: Id
    sha256: Sha256 | None = None
    size_bytes: Count = 0
    failure: Text = ""
    limit_s: float = Field(default=0.0, ge=0)


def inputs_id(inputs: Mapping[str, BaseModel]) -> str:
    """Return the sha256 of a job's input specification; references are valid for these inputs only."""
    said = {name: spec.model_dump(mode="json") for name, spec in inputs.items()}
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
