"""Base of the mappings of a campaign file, and the bounds of its lists and tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from orchestrator.manifest.problems import suggestion
from orchestrator.manifest.values import MAX_ITEMS, JsonSchema, describe, mistake


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value under a key that does not exist; `text` is the sentence that says so."""

    text: str


class Keys(BaseModel):
    """A mapping with known keys. `refused`: what the message says of a key that many would write there."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    refused: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _with_unknown_keys_marked(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise mistake(f"expected keys with values, found {describe(value)}")
        return {key: one if key in cls.model_fields else cls._unknown(key) for key, one in value.items()}

    @classmethod
    def _unknown(cls, name: str) -> Unknown:
        if name in cls.refused:
            return Unknown(f"key {name!r} {cls.refused[name]}")
        return Unknown(f"unknown key {name!r}{suggestion(name, cls.model_fields)}")


def written(*levels: Keys | None) -> dict[str, Any]:
    """Return the keys that a file has, as plain values; of several mappings, the later ones go first."""
    return {name: one for keys in levels if keys for name, one in keys.model_dump(exclude_unset=True).items()}


LATER = "is not supported by this version"
"""What is said of a key that the full schema has and this version has not."""


def key(about: str, default: Any = None) -> Any:
    """Declare a key that may be left out; `about` says in a sentence what it is for."""
    return Field(default, description=about)


def required(about: str) -> Any:
    """Declare a key that every file has."""
    return Field(description=about)


@dataclass(frozen=True, slots=True)
class Items:
    """Bounds of a list's length."""

    minimum: int = 0
    maximum: int = MAX_ITEMS

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.checked, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        return handler(core) | {"minItems": self.minimum, "maxItems": self.maximum}

    def checked(self, value: Any) -> list[Any]:
        """Return a list of an allowed length. Raise a `mistake` otherwise."""
        if not isinstance(value, list):
            raise mistake(f"expected a list, found {describe(value)}")
        if not self.minimum <= len(value) <= self.maximum:
            raise mistake(f"expected {self.minimum} to {self.maximum} items, found {len(value)}")
        return value


class OneOrMany(Items):
    """A list of an allowed length, or its only item."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        found = handler(core)
        bounds = {"minItems": self.minimum, "maxItems": self.maximum}
        return {"anyOf": [found["items"], found | bounds]}

    def checked(self, value: Any) -> list[Any]:
        """Return a list of an allowed length. Raise a `mistake` otherwise."""
        # Here a scalar is still a node, but a list is one of Python already (`Places.values`).
        return [value] if isinstance(value, yaml.ScalarNode) else Items.checked(self, value)


@dataclass(frozen=True, slots=True)
class Entries:
    """Bound of a table, which is a mapping with free keys."""

    maximum: int = MAX_ITEMS

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        return handler(core) | {"maxProperties": self.maximum}

    def _checked(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise mistake(f"expected keys with values, found {describe(value)}")
        if len(value) > self.maximum:
            raise mistake(f"expected at most {self.maximum} entries, found {len(value)}")
        return value
