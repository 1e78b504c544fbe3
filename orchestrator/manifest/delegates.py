"""Reads delegate kinds and their options from the installed descriptors, without making a delegate.

An entry point of the group `delegate_farm.delegates` names a descriptor (`runtime.delegates.descriptor`).
This floor does not import the runtime: it reads of a descriptor what the protocols below name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from itertools import product
from typing import Any, Final, Protocol

import yaml

from orchestrator.manifest.campaign import DelegateEntry, OptionValue
from orchestrator.manifest.json_schema import JsonSchema, described, schema_of
from orchestrator.manifest.problems import Problems, suggestion
from orchestrator.manifest.readers import Reader, choice, entries, listing, number, text, yes_or_no

ENTRY_POINT_GROUP: Final = "delegate_farm.delegates"

MOST_SWEPT_VALUES: Final = 32
"""The most values that one option may list. Chosen: each is a delegate of its own, which multiplies the
cells. A longer list would fail at the limit on a campaign's cells, whose message names no line."""

MOST_OPTION_CHARACTERS: Final = 8192
"""The longest text of an option, as messages to agents bound it (`agent.wire.bounded.MAX_TEXT`). The longest
real one is what a delegate chose by timing, some twenty characters for each operator that was compared."""

_SHORT_NAMES = {"threads": "t"}
"""The short name of an option in the name of a swept delegate: `cpu-t4`, not `cpu-threads4`."""


class DeclaredOption(Protocol):
    """An option of a descriptor: the type, the allowed texts and the bounds of its value."""

    @property
    def value_type(self) -> type:
        """`str`, `int`, `float` or `bool`."""

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed texts; empty for any."""

    @property
    def minimum(self) -> float | None:
        """Inclusive bound of a number."""

    @property
    def maximum(self) -> float | None:
        """Inclusive bound of a number."""


class UnusableKindError(Exception):
    """The package of a delegate kind is installed, but its options cannot be read."""


@cache
def known_kinds() -> tuple[str, ...]:
    """Every delegate that is installed as an entry point, sorted; nothing is imported."""
    return tuple(sorted({point.name for point in entry_points(group=ENTRY_POINT_GROUP)}))


@cache
def default_kinds() -> tuple[str, ...]:
    """Return the kinds of a submission that names none: all but those that their descriptors leave out.

    A kind whose descriptor cannot be loaded is among them, so that its cells say why.
    """
    return tuple(kind for kind in known_kinds() if _is_default(kind))


def _is_default(kind: str) -> bool:
    points = list(entry_points(group=ENTRY_POINT_GROUP, name=kind))
    try:
        return all(getattr(point.load(), "is_default", True) for point in points)
    except Exception:  # noqa: BLE001  # a foreign package may raise anything at import
        return True


@cache
def declared_options(kind: str) -> Mapping[str, DeclaredOption]:
    """Return the options that the descriptor of a known kind declares. Raises `UnusableKindError`."""
    (point, *others) = entry_points(group=ENTRY_POINT_GROUP, name=kind)
    if others:
        packages = ", ".join(sorted(p.value for p in (point, *others)))
        raise UnusableKindError(f"it is registered twice ({packages}); uninstall all but one")
    try:
        descriptor = point.load()
        found: Mapping[str, DeclaredOption] = descriptor.options
    except Exception as error:  # a foreign package may raise anything at import
        raise UnusableKindError(f"{point.value} cannot be loaded: {error}") from error
    return found


def _reader(name: str, option: DeclaredOption) -> Reader[Any]:
    if option.choices:
        return choice(option.choices, name)
    if option.value_type is bool:
        return yes_or_no
    if option.value_type is str:
        return text(numeric=True, limit=MOST_OPTION_CHARACTERS)
    return number(whole=option.value_type is int, minimum=option.minimum, maximum=option.maximum)


@dataclass(frozen=True, slots=True)
class DelegateForm:
    """A delegate as written: an option may be a list of values."""

    kind: str
    options: Mapping[str, OptionValue | list[OptionValue]]


def _form_schema() -> JsonSchema:
    """Return a form for each kind that is installed and can be loaded."""
    forms = []
    for kind in known_kinds():
        try:
            declared = declared_options(kind)
        except UnusableKindError:
            continue
        options = {name: _option_schema(name, option) for name, option in declared.items()}
        forms.append({
            "type": "object",
            "properties": {"kind": {"const": kind}, **options},
            "required": ["kind"],
            "additionalProperties": False,
        })  # fmt: skip
    return {"anyOf": forms}


def _option_schema(name: str, option: DeclaredOption) -> JsonSchema:
    """One value, or several, which make a delegate each."""
    one = schema_of(_reader(name, option))
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1, "maxItems": MOST_SWEPT_VALUES}]}


@described(_form_schema)
def delegate(node: yaml.Node, problems: Problems) -> DelegateForm | None:
    """Read `{kind: cpu, threads: [1, 4]}`. An option that the kind does not declare is a problem."""
    found = entries(node, problems)
    if found is None:
        return None
    if "kind" not in found:
        problems.add(node, "missing key 'kind'")
        return None
    kind_node = found.pop("kind")[1]
    kind = choice(known_kinds(), "delegate kind")(kind_node, problems)
    if kind is None:
        return None
    try:
        declared = declared_options(kind)
    except UnusableKindError as error:
        problems.add(kind_node, f"delegate kind {kind!r} cannot be used here: {error}")
        return None
    options: dict[str, OptionValue | list[OptionValue]] = {}
    for key, (key_node, value_node) in found.items():
        if key not in declared:
            hint = suggestion(key, declared) or "; it takes no options"
            problems.add(key_node, f"unknown option {key!r} of delegate kind {kind!r}{hint}")
            continue
        reader = _reader(key, declared[key])
        if isinstance(value_node, yaml.SequenceNode):
            reader = listing(reader, minimum=1, maximum=MOST_SWEPT_VALUES)
        value = reader(value_node, problems)
        if value is not None:
            options[key] = value
    return DelegateForm(kind, options)


def expand(name: str, form: DelegateForm) -> Iterator[DelegateEntry]:
    """One delegate per combination of the options that are lists: `threads: [1, 4]` → `cpu-t1`, `cpu-t4`."""
    swept = [key for key, value in form.options.items() if isinstance(value, list)]
    columns = [value if isinstance(value, list) else [value] for value in form.options.values()]
    for values in product(*columns):
        chosen = dict(zip(form.options, values, strict=True))
        suffix = "".join(f"-{_SHORT_NAMES.get(key, '')}{chosen[key]}" for key in swept)
        yield DelegateEntry(name + suffix, form.kind, chosen)
