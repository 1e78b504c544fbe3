"""Describes the readers as JSON Schema, by which editors complete and check a `models.yaml`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

import yaml

from orchestrator.manifest.problems import Problems

T = TypeVar("T")
JsonSchema: TypeAlias = dict[str, Any]


@runtime_checkable
class SelfDescribing(Protocol):
    """A reader that can say what it accepts."""

    def json_schema(self) -> JsonSchema:
        """Return the schema, draft 2020-12. It accepts whatever the reader accepts, and little else."""


@dataclass(frozen=True, slots=True)
class Described(Generic[T]):
    """A reader with its schema, which is made when somebody asks: that of delegates loads their packages."""

    read: Callable[[yaml.Node, Problems], T | None]
    schema: Callable[[], JsonSchema]

    def __call__(self, node: yaml.Node, problems: Problems) -> T | None:
        """Read the value; None behind a problem."""
        return self.read(node, problems)

    def json_schema(self) -> JsonSchema:
        """See `SelfDescribing`."""
        return self.schema()


def described(
    schema: Callable[[], JsonSchema],
) -> Callable[[Callable[[yaml.Node, Problems], T | None]], Described[T]]:
    """Decorate a reader with its schema."""
    return lambda read: Described(read, schema)


def schema_of(reader: object) -> JsonSchema:
    """Return the schema of a reader. Raises `TypeError` for one that has none."""
    if not isinstance(reader, SelfDescribing):
        raise TypeError(f"{reader!r} does not say what it accepts")
    return reader.json_schema()
