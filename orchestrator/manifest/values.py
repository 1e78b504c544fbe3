"""Types of the single values of a campaign file: each reads a YAML node and says what it accepts.

A type stands in the annotation of a key, `Annotated[float, Duration()]`. pydantic calls it with the node as
written, so that `3.10` is still text and `off` is still a word, and asks it for its JSON schema.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Final, TypeAlias

import yaml
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from agent.wire.bounded import MAX_INTEGER
from orchestrator.manifest.problems import suggestion

JsonSchema: TypeAlias = dict[str, Any]

MAX_DIGITS: Final = 60
"""The longest number that is read, in characters. Chosen above any number that means something here. Python
raises for an integer of more than 4300 digits; far below that a longer text is one problem of its line."""

BOUND_DIGITS: Final = 15
"""Significant digits of a bound in a message: all that a float holds for certain. The default of six would
show 10000000 as 1e+07."""

MAX_SHOWN: Final = 40
"""The most characters of a user's own text that a message repeats. Chosen: a message stays one line."""

MAX_TEXT: Final = 2000
"""The longest text, in characters. Chosen above any path or address; a longer one is a mistake of quoting."""

MAX_ITEMS: Final = 10_000
"""The longest list where a key sets no limit of its own. Chosen below the number of values that a whole
file may have (`document.MAX_NODES`), so that the message names the list."""

_DAY_S: Final = 86_400
"""Seconds of a day of 24 hours, as `d` means it; leap seconds and summer time do not enter."""

_YEAR_S: Final = 365 * _DAY_S
"""The longest duration, in seconds. Chosen: no user waits longer; a larger number has the wrong unit."""

_SHORTEST_S: Final = 0.001
"""The shortest duration that is written as a plain number of seconds: one of the smallest unit, `1ms`."""

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": float(_DAY_S)}
_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)(\s*%)?")
_TAG_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "yes/no",
    "null": "nothing",
    "timestamp": "a date",
}


def mistake(text: str) -> PydanticCustomError:
    """Return the error whose message is `text` as it stands."""
    return PydanticCustomError("mistake", text)


def describe(value: object) -> str:
    """Describe the user's value in words: `a list`, `text 'abc'`."""
    if not isinstance(value, yaml.ScalarNode):
        return "keys with values" if isinstance(value, dict | yaml.MappingNode) else "a list"
    word = _TAG_WORDS.get(_kind(value), "something else")
    if not value.value:
        return word
    shown = value.value if len(value.value) <= MAX_SHOWN else value.value[: MAX_SHOWN - 3] + "..."
    return f"{word} {shown!r}"


def _kind(value: object) -> str:
    """Return YAML's name of a scalar's type; empty for a list or a mapping."""
    return value.tag.rpartition(":")[2] if isinstance(value, yaml.ScalarNode) else ""


def _loaded(node: yaml.ScalarNode) -> Any:
    """Return the Python value of a number or yes/no; NaN, which no bound accepts, for an absurd length."""
    if len(node.value) > MAX_DIGITS:
        return float("nan")
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node)
    finally:
        loader.dispose()


class ValueType:
    """Base of the types: `read` returns the value or raises a `mistake`, `schema` is its JSON schema."""

    def read(self, value: Any) -> Any:
        """Return the Python value of a node. Raise a `mistake` where it does not fit."""
        raise NotImplementedError

    def schema(self) -> JsonSchema:
        """Return what `read` accepts as JSON schema, draft 2020-12."""
        raise NotImplementedError

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, _core: CoreSchema, _handler: GetJsonSchemaHandler) -> JsonSchema:
        return self.schema()


@dataclass(frozen=True, slots=True)
class Text(ValueType):
    """Printable text. `pattern` must match it whole (`rule` in words); `numeric` takes `3.10` as written."""

    pattern: str | None = None
    rule: str = ""
    numeric: bool = False
    limit: int = MAX_TEXT

    def read(self, value: Any) -> str:
        """See `ValueType.read`."""
        tags = {"str", "int", "float"} if self.numeric else {"str"}
        if not isinstance(value, str) and _kind(value) not in tags:  # a key of a table is a str already
            hint = "; put it in quotes" if isinstance(value, yaml.ScalarNode) and value.value else ""
            raise mistake(f"expected text, found {describe(value)}{hint}")
        text: str = value if isinstance(value, str) else value.value
        if not text.strip() or not text.isprintable() or len(text) > self.limit:
            raise mistake(f"expected 1 to {self.limit} printable characters")
        if self.pattern is not None and not re.fullmatch(self.pattern, text):
            raise mistake(f"{text!r}: {self.rule}")
        return text

    def schema(self) -> JsonSchema:
        """See `ValueType.schema`."""
        form: JsonSchema = {"type": ["string", "number"] if self.numeric else "string", "minLength": 1}
        form |= {"maxLength": self.limit} if self.limit < MAX_TEXT else {}
        return form | ({"pattern": f"^(?:{self.pattern})$"} if self.pattern else {})


@dataclass(frozen=True, slots=True)
class Choice(ValueType):
    """One of the known words, as written: YAML's own reading of `off` or `on` does not count."""

    known: Iterable[str]
    noun: str

    def read(self, value: Any) -> str:
        """See `ValueType.read`."""
        if isinstance(value, yaml.ScalarNode) and value.value in self.known:
            return str(value.value)
        word = Text(numeric=True).read(value)
        raise mistake(f"unknown {self.noun} {word!r}{suggestion(word, self.known)}")

    def schema(self) -> JsonSchema:
        """See `ValueType.schema`."""
        return {"enum": list(self.known)}


@dataclass(frozen=True, slots=True)
class Number(ValueType):
    """A finite number with inclusive bounds."""

    minimum: float | None = None
    maximum: float | None = None
    tags: ClassVar[tuple[str, ...]] = ("int", "float")
    expected: ClassVar[str] = "a number"

    def read(self, value: Any) -> float:
        """See `ValueType.read`."""
        bounds = "".join(
            f" {word} {bound:.{BOUND_DIGITS}g}"
            for word, bound in (("at least", self.minimum), ("at most", self.maximum))
            if bound is not None
        )
        if _kind(value) not in self.tags:
            raise mistake(f"expected {self.expected}{bounds}, found {describe(value)}")
        number: float = _loaded(value)
        least = -float("inf") if self.minimum is None else self.minimum
        most = float("inf") if self.maximum is None else self.maximum
        # Written so that NaN, for which every comparison is false, is refused.
        if not least <= number <= most or abs(number) == float("inf"):
            raise mistake(f"expected {self.expected}{bounds}, found {value.value[:MAX_DIGITS]}")
        return number

    def schema(self) -> JsonSchema:
        """See `ValueType.schema`."""
        bounds = {"minimum": self.minimum, "maximum": self.maximum}
        kind = "integer" if self.tags == ("int",) else "number"
        return {"type": kind} | {key: bound for key, bound in bounds.items() if bound is not None}


@dataclass(frozen=True, slots=True)
class Whole(Number):
    """A whole number of at most 64 bits, with inclusive bounds."""

    tags: ClassVar[tuple[str, ...]] = ("int",)
    expected: ClassVar[str] = "a whole number"

    def read(self, value: Any) -> float:
        """See `ValueType.read`."""
        number = Number.read(self, value)
        if abs(number) > MAX_INTEGER:
            shown = value.value[:MAX_DIGITS]
            raise mistake(f"expected {self.expected} of at most 64 bits, found {shown}")
        return number


@dataclass(frozen=True, slots=True)
class YesNo(ValueType):
    """`true` or `false`."""

    def read(self, value: Any) -> bool:
        """See `ValueType.read`."""
        if _kind(value) != "bool":
            raise mistake(f"expected true or false, found {describe(value)}")
        return bool(_loaded(value))

    def schema(self) -> JsonSchema:
        """See `ValueType.schema`."""
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Duration(ValueType):
    """Seconds above 0: a number of seconds, or `500ms`, `30s`, `15m`, `12h`, `7d`."""

    pattern: ClassVar = r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)"

    def read(self, value: Any) -> float:
        """See `ValueType.read`."""
        if _kind(value) in ("int", "float"):
            return Number(_SHORTEST_S, _YEAR_S).read(value)
        found = re.fullmatch(self.pattern, value.value) if isinstance(value, yaml.ScalarNode) else None
        seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
        if not 0 < seconds <= _YEAR_S:
            raise mistake(f"expected a duration such as 30s, 15m or 12h, found {describe(value)}")
        return seconds

    def schema(self) -> JsonSchema:
        """See `ValueType.schema`."""
        text = {"type": "string", "pattern": f"^(?:{self.pattern})$"}
        return {"anyOf": [text, Number(_SHORTEST_S, _YEAR_S).schema()]}


@dataclass(frozen=True, slots=True)
class Share(ValueType):
    """A share from `minimum` to `maximum`: `5%`, or a number such as 0.05."""

    minimum: float
    maximum: float

    def read(self, value: Any) -> float:
        """See `ValueType.read`."""
        found = _PERCENTAGE.fullmatch(value.value) if isinstance(value, yaml.ScalarNode) else None
        if found is not None and len(value.value) <= MAX_DIGITS:
            # As a decimal, so that 1.1% is the very number that 0.011 is.
            share = float(Decimal(found[1]) / (100 if found[2] else 1))
            if self.minimum <= share <= self.maximum:
                return share
        bounds = f"from {100 * self.minimum:g}% to {100 * self.maximum:g}%"
        raise mistake(f"expected a share {bounds}, such as 5% or 0.05; found {describe(value)}")

    def schema(self) -> JsonSchema:
        """See `ValueType.schema`."""
        text = {"type": "string", "pattern": f"^(?:{_PERCENTAGE.pattern})$"}
        return {"anyOf": [text, Number(self.minimum, self.maximum).schema()]}
