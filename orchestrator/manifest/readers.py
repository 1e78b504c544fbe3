"""Readers that turn one YAML node into one typed value, and note a problem where it does not fit.

A reader returns `None` after noting a problem; nothing is built from a file with problems.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, TypeAlias, TypeVar

import yaml

from agent.wire.bounded import MAX_INTEGER
from orchestrator.manifest.json_schema import Described, JsonSchema, described, schema_of
from orchestrator.manifest.problems import Problems, suggestion

T = TypeVar("T")
Reader: TypeAlias = Callable[[yaml.Node, Problems], T | None]

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
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)(\s*%)?")
_TAG_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "yes/no",
    "null": "nothing",
    "timestamp": "a date",
    "seq": "a list",
    "map": "keys with values",
}


def describe(node: yaml.Node) -> str:
    """Describe the user's value in words: `a list`, `text 'abc'`."""
    word = _TAG_WORDS.get(node.tag.rsplit(":", 1)[-1], "something else")
    if isinstance(node, yaml.ScalarNode) and node.value:
        shown = node.value if len(node.value) <= MAX_SHOWN else node.value[: MAX_SHOWN - 3] + "..."
        return f"{word} {shown!r}"
    return word


def scalar(node: yaml.Node) -> Any:
    """Return the Python value of a number or yes/no. A number of absurd length is NaN: no bound accepts
    it.
    """
    if len(node.value) > MAX_DIGITS:
        return float("nan")
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node)
    finally:
        loader.dispose()


def text(
    *, pattern: str | None = None, rule: str = "", numeric: bool = False, limit: int = MAX_TEXT
) -> Reader[str]:
    """Printable text. `pattern` must match it whole (`rule` in words); `numeric` takes `3.10` as written."""
    tags = {"str"} | ({"int", "float"} if numeric else set())

    def read(node: yaml.Node, problems: Problems) -> str | None:
        if not isinstance(node, yaml.ScalarNode) or node.tag.rsplit(":", 1)[-1] not in tags:
            hint = "; put it in quotes" if isinstance(node, yaml.ScalarNode) and node.value else ""
            problems.add(node, f"expected text, found {describe(node)}{hint}")
        elif not node.value.strip() or not node.value.isprintable() or len(node.value) > limit:
            problems.add(node, f"expected 1 to {limit} printable characters")
        elif pattern is not None and not re.fullmatch(pattern, node.value):
            problems.add(node, f"{node.value!r}: {rule}")
        else:
            return str(node.value)
        return None

    schema: JsonSchema = {"type": ["string", "number"] if numeric else "string", "minLength": 1}
    schema |= {"maxLength": limit} if limit < MAX_TEXT else {}
    return Described(read, lambda: schema | ({"pattern": f"^(?:{pattern})$"} if pattern else {}))


def choice(known: Mapping[str, Any] | tuple[str, ...], what: str) -> Reader[str]:
    """One of the known words, as written: YAML's own reading of `off` or `on` does not count."""

    def read(node: yaml.Node, problems: Problems) -> str | None:
        if isinstance(node, yaml.ScalarNode) and node.value in known:
            return str(node.value)
        word = text(numeric=True)(node, problems)
        if word is not None:
            problems.add(node, f"unknown {what} {word!r}{suggestion(word, known)}")
        return None

    return Described(read, lambda: {"enum": list(known)})


def number(
    *, whole: bool = False, minimum: float | None = None, maximum: float | None = None
) -> Reader[float]:
    """Return a reader of a finite number, inclusive bounds; an `int` of at most 64 bits if `whole`."""
    expected = "a whole number" if whole else "a number"
    bounds = "".join(
        f" {word} {bound:.{BOUND_DIGITS}g}"
        for word, bound in (("at least", minimum), ("at most", maximum))
        if bound is not None
    )

    def read(node: yaml.Node, problems: Problems) -> float | None:
        kinds = ("int",) if whole else ("int", "float")
        if not isinstance(node, yaml.ScalarNode) or node.tag.rsplit(":", 1)[-1] not in kinds:
            problems.add(node, f"expected {expected}{bounds}, found {describe(node)}")
            return None
        value: float = scalar(node)
        too_small = minimum is not None and not value >= minimum
        too_large = maximum is not None and not value <= maximum
        if too_small or too_large or value in (float("inf"), float("-inf")) or value != value:
            problems.add(node, f"expected {expected}{bounds}, found {node.value[:MAX_DIGITS]}")
            return None
        if whole and abs(value) > MAX_INTEGER:
            problems.add(node, f"expected {expected} of at most 64 bits, found {node.value[:MAX_DIGITS]}")
            return None
        return value

    limits = {"minimum": minimum, "maximum": maximum}
    schema: JsonSchema = {"type": "integer" if whole else "number"}
    return Described(
        read, lambda: schema | {key: bound for key, bound in limits.items() if bound is not None}
    )


@described(
    lambda: {
        "anyOf": [
            {"type": "string", "pattern": f"^(?:{_DURATION.pattern})$"},
            {"type": "number", "minimum": _SHORTEST_S, "maximum": _YEAR_S},
        ]
    }
)
def duration(node: yaml.Node, problems: Problems) -> float | None:
    """Seconds > 0: a number of seconds, or `500ms`, `30s`, `15m`, `12h`, `7d`."""
    found = _DURATION.fullmatch(node.value) if isinstance(node, yaml.ScalarNode) else None
    if found:
        seconds = float(found[1]) * _SECONDS[found[2]]
        if 0 < seconds <= _YEAR_S:
            return seconds
    elif isinstance(node, yaml.ScalarNode) and node.tag.rsplit(":", 1)[-1] in ("int", "float"):
        return number(minimum=_SHORTEST_S, maximum=_YEAR_S)(node, problems)
    problems.add(node, f"expected a duration such as 30s, 15m or 12h, found {describe(node)}")
    return None


def percentage(*, minimum: float, maximum: float) -> Reader[float]:
    """Return a reader of a share: `5%`, or a number such as 0.05; inclusive bounds."""
    expected = f"expected a share from {100 * minimum:g}% to {100 * maximum:g}%, such as 5% or 0.05"

    def read(node: yaml.Node, problems: Problems) -> float | None:
        found = _PERCENTAGE.fullmatch(node.value) if isinstance(node, yaml.ScalarNode) else None
        if found is not None and len(node.value) <= MAX_DIGITS:
            # As a decimal, so that 1.1% is the very number that 0.011 is.
            value = float(Decimal(found[1]) / (100 if found[2] else 1))
            if minimum <= value <= maximum:
                return value
        problems.add(node, f"{expected}; found {describe(node)}")
        return None

    schema: JsonSchema = {
        "anyOf": [
            {"type": "string", "pattern": f"^(?:{_PERCENTAGE.pattern})$"},
            {"type": "number", "minimum": minimum, "maximum": maximum},
        ]
    }
    return Described(read, lambda: schema)


@described(lambda: {"type": "boolean"})
def yes_or_no(node: yaml.Node, problems: Problems) -> bool | None:
    """Read `true` or `false`."""
    if not isinstance(node, yaml.ScalarNode) or not node.tag.endswith(":bool"):
        problems.add(node, f"expected true or false, found {describe(node)}")
        return None
    return bool(scalar(node))


def listing(item: Reader[T], *, minimum: int = 0, maximum: int = MAX_ITEMS) -> Reader[list[T]]:
    """Read a list; its items keep their order."""

    def read(node: yaml.Node, problems: Problems) -> list[T] | None:
        if not isinstance(node, yaml.SequenceNode):
            problems.add(node, f"expected a list, found {describe(node)}")
            return None
        if not minimum <= len(node.value) <= maximum:
            problems.add(node, f"expected {minimum} to {maximum} items, found {len(node.value)}")
            return None
        items = [item(child, problems) for child in node.value]
        return [value for value in items if value is not None]

    return Described(
        read,
        lambda: {"type": "array", "items": schema_of(item), "minItems": minimum, "maxItems": maximum},
    )


def entries(node: yaml.Node, problems: Problems) -> dict[str, tuple[yaml.Node, yaml.Node]] | None:
    """Key → (key node, value node) of a mapping; a key that is written twice is a problem."""
    if not isinstance(node, yaml.MappingNode):
        problems.add(node, f"expected keys with values, found {describe(node)}")
        return None
    found: dict[str, tuple[yaml.Node, yaml.Node]] = {}
    for key, value in node.value:
        name = text(numeric=True)(key, problems)
        if name is None:
            continue
        if name in found:
            first = found[name][0].start_mark.line + 1
            problems.add(key, f"key {name!r} is written twice; first on line {first}")
        else:
            found[name] = (key, value)
    return found


@dataclass(frozen=True)
class Keys:
    """A mapping with known keys. `later` are keys of the full schema that this version does not have;
    `elsewhere` says where a misplaced key belongs, `replaced` what is written in place of an earlier one.
    `about` says of each key what it is for, in a sentence.
    """

    known: Mapping[str, Reader[Any]]
    required: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, node: yaml.Node, problems: Problems) -> dict[str, Any] | None:
        """Return the values of the keys that are present."""
        found = entries(node, problems)
        if found is None:
            return None
        values = {}
        for name, (key, value) in found.items():
            if name in self.known:
                values[name] = self.known[name](value, problems)
            else:
                problems.add(key, self._unknown(name))
        for name in self.required:
            if name not in found:
                problems.add(node, f"missing key {name!r}")
        return values

    def json_schema(self) -> JsonSchema:
        """See `json_schema.SelfDescribing`."""
        return {
            "type": "object",
            "properties": {
                name: schema_of(reader) | {"description": self.about[name]}
                for name, reader in self.known.items()
            },
            "required": list(self.required),
            "additionalProperties": False,
        }

    def _unknown(self, name: str) -> str:
        if name in self.later:
            return f"key {name!r} is not supported by this version"
        if name in self.elsewhere:
            return f"key {name!r} does not belong here; {self.elsewhere[name]}"
        if name in self.replaced:
            return f"key {name!r} was replaced; write {self.replaced[name]}"
        return f"unknown key {name!r}{suggestion(name, self.known)}"


def table(
    value: Reader[T], name: Reader[str] | None = None, maximum: int = MAX_ITEMS
) -> Reader[dict[str, T]]:
    """Return a reader of a mapping: free keys, checked by `name`; values of one form; at most `maximum`."""

    def read(node: yaml.Node, problems: Problems) -> dict[str, T] | None:
        found = entries(node, problems)
        if found is None:
            return None
        if len(found) > maximum:
            problems.add(node, f"expected at most {maximum} entries, found {len(found)}")
            return None
        values = {}
        for key, (key_node, value_node) in found.items():
            checked = key if name is None else name(key_node, problems)
            read_value = value(value_node, problems)
            if checked is not None and read_value is not None:
                values[checked] = read_value
        return values

    def schema() -> JsonSchema:
        names = {} if name is None else {"propertyNames": schema_of(name)}
        form = {"type": "object", "additionalProperties": schema_of(value), "maxProperties": maximum}
        return form | names

    return Described(read, schema)


@dataclass(frozen=True, slots=True)
class Placed:
    """A value with the node it came from, for rules that span several places of the file."""

    value: Any
    node: yaml.Node


def placed(reader: Reader[T]) -> Reader[Placed]:
    """Keep the node beside the value."""

    def read(node: yaml.Node, problems: Problems) -> Placed | None:
        value = reader(node, problems)
        return None if value is None else Placed(value, node)

    return Described(read, lambda: schema_of(reader))
