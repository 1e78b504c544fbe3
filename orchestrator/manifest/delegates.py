"""Reads delegate kinds and their options from the installed descriptors, without making a delegate.

An entry point of the group `delegate_farm.delegates` names a descriptor (`runtime.delegates.descriptor`).
This floor does not import the runtime: it reads of a descriptor what the protocols below name.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from itertools import product
from math import prod
from typing import Any, Final, Literal, Protocol, TypeAlias

import yaml
from pydantic import ValidationError
from pydantic_core import PydanticCustomError, SchemaValidator, core_schema

from orchestrator.errors import UsageError
from orchestrator.manifest import values as value_types
from orchestrator.manifest.campaign import DelegateEntry, OptionValue
from orchestrator.manifest.keys import Items, Unknown
from orchestrator.manifest.problems import suggestion

ENTRY_POINT_GROUP: Final = "delegate_farm.delegates"

_OWN: Final = "delegate-farm"
"""The distribution whose delegates a submission takes that names none."""

SWEPT: Final = Items(1, 32)
"""How many values one option may list. Chosen: each is a delegate of its own, which multiplies the cells. A
longer list would fail at the limit on a campaign's cells, whose message names no line."""

MOST_OPTION_CHARACTERS: Final = 8192
"""The longest text of an option, as messages to agents bound it (`agent.wire.bounded.MAX_TEXT`). The longest
real one is what a delegate chose by timing, some twenty characters for each operator that was compared."""

MOST_COLUMNS: Final = 256
"""The most delegates that the lists of one entry may make. Chosen above what a table can show; a larger one
would only let lists multiply to more cells than a campaign may have, whose message names no line."""

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


_Settled: TypeAlias = Callable[[Mapping[str, OptionValue]], Mapping[str, OptionValue] | str]


class UnusableKindError(Exception):
    """The package of a delegate kind is installed, but its options cannot be read."""


@cache
def known_kinds() -> tuple[str, ...]:
    """Every delegate that is installed as an entry point, sorted; nothing is imported."""
    return tuple(sorted({point.name for point in _points()}))


@cache
def _points() -> Sequence[EntryPoint]:
    """Return what installed packages register: every one of them is looked through for it."""
    return tuple(entry_points(group=ENTRY_POINT_GROUP))


@cache
def default_kinds() -> tuple[str, ...]:
    """Return the kinds of a submission that names none: the farm's own, but for those that their descriptors
    leave out. What else is installed on the user's machine must not change what everyone measures.
    """
    return tuple(kind for kind in known_kinds() if _is_default(kind))


def _is_default(kind: str) -> bool:
    points = [point for point in _points() if point.name == kind]
    own = [point for point in points if point.dist is not None and point.dist.name == _OWN]
    # A kind that a foreign package registers too cannot be used, and that package is not imported here.
    return own == points and all(getattr(point.load(), "is_default", True) for point in own)


@cache
def declared_options(kind: str) -> Mapping[str, DeclaredOption]:
    """Return the options that the descriptor of a known kind declares. Raises `UnusableKindError`."""
    return _descriptor(kind)[0]


def settled(kind: str, options: Mapping[str, OptionValue]) -> Mapping[str, OptionValue] | str:
    """Return the options of one column as its delegate keeps them, or why it refuses them together."""
    return _descriptor(kind)[1](options)


@cache
def _descriptor(kind: str) -> tuple[Mapping[str, DeclaredOption], _Settled]:
    (point, *others) = (point for point in _points() if point.name == kind)
    if others:
        packages = ", ".join(sorted(p.value for p in (point, *others)))
        raise UnusableKindError(f"it is registered twice ({packages}); uninstall all but one")
    try:
        descriptor = point.load()
        found: Mapping[str, DeclaredOption] = descriptor.options
        return found, getattr(descriptor, "settled", lambda given: given)
    except Exception as error:  # a foreign package may raise anything at import
        raise UnusableKindError(f"{point.value} cannot be loaded: {error}") from error


def _type(name: str, option: DeclaredOption) -> value_types.ValueType:
    if option.choices:
        return value_types.Choice(option.choices, name)
    if option.value_type is bool:
        return value_types.YesNo()
    if option.value_type is str:
        return value_types.Text(numeric=True, limit=MOST_OPTION_CHARACTERS)
    return (value_types.Whole if option.value_type is int else value_types.Number)(
        option.minimum, option.maximum
    )


def read_options(kind: str, texts: Mapping[str, str]) -> dict[str, OptionValue]:
    """Return those of the options, written as in a campaign file, that a kind takes. Raises `UsageError`."""
    try:
        types = {name: _type(name, one) for name, one in declared_options(kind).items() if name in texts}
    except UnusableKindError as error:
        if not texts:
            return {}
        raise UsageError(f"delegate kind {kind!r} cannot be used here: {error}") from error
    found = {}
    for name, one in types.items():
        # (True, False): a plain scalar, as if it stood in a file without quotes.
        tag = yaml.SafeLoader("").resolve(yaml.ScalarNode, texts[name], (True, False))  # type: ignore[no-untyped-call]
        try:
            found[name] = one.read(yaml.ScalarNode(tag, texts[name]))
        except PydanticCustomError as error:
            raise UsageError(f"option {name!r} of delegate kind {kind!r}: {error}") from error
    return found


@dataclass(frozen=True, slots=True)
class DelegateForm:
    """A delegate as written: an option may be a list of values."""

    kind: str
    options: Mapping[str, OptionValue | list[OptionValue]]


class WrittenDelegate(value_types.ValueType):
    """`{kind: cpu, threads: [1, 4]}`. An option that the kind does not declare is a mistake."""

    def read(self, value: Any) -> DelegateForm:
        """See `ValueType.read`."""
        if not isinstance(value, dict):
            raise value_types.mistake(f"expected keys with values, found {value_types.describe(value)}")
        if "kind" not in value:
            raise _at_kind("missing")
        try:
            kind = value_types.Choice(known_kinds(), "delegate kind").read(value["kind"])
            types = {name: _type(name, option) for name, option in declared_options(kind).items()}
        except UnusableKindError as error:
            text = f"delegate kind {value['kind'].value!r} cannot be used here: {error}"
            raise _at_kind(value_types.mistake(text)) from error
        except PydanticCustomError as error:
            raise _at_kind(error) from error
        noun = f"of delegate kind {kind!r}"
        options = {
            name: one
            if name in types
            else Unknown(
                f"unknown option {name!r} {noun}{suggestion(name, types) or '; it takes no options'}"
            )
            for name, one in value.items()
            if name != "kind"
        }
        return DelegateForm(kind, _options_validator(types).validate_python(options))

    def schema(self) -> value_types.JsonSchema:
        """Return a form for each kind that is installed and can be loaded."""
        return {"anyOf": [form for kind in known_kinds() for form in _kind_schema(kind)]}


def _at_kind(error: PydanticCustomError | Literal["missing"]) -> ValidationError:
    # pydantic takes a `ValidationError` from a validator as mistakes within its value, and puts the place of
    # the value in front of theirs.
    return ValidationError.from_exception_data("delegate", [{"type": error, "loc": ("kind",), "input": None}])


def _options_validator(types: Mapping[str, value_types.ValueType]) -> SchemaValidator:
    """Return what reads the options of a kind: each is one value, or a list of them."""
    fields = {}
    for name, one in types.items():
        single = core_schema.no_info_plain_validator_function(one.read)
        swept = core_schema.no_info_before_validator_function(SWEPT.checked, core_schema.list_schema(single))
        # Tagged: a plain union would report the mistakes of both forms.
        either = core_schema.tagged_union_schema({"list": swept, "one": single}, _list_or_one)
        fields[name] = core_schema.typed_dict_field(either, required=False)
    return SchemaValidator(core_schema.typed_dict_schema(fields, extra_behavior="forbid"))


def _list_or_one(value: object) -> str:
    return "list" if isinstance(value, list) else "one"


def _kind_schema(kind: str) -> Iterator[value_types.JsonSchema]:
    try:
        declared = declared_options(kind)
    except UnusableKindError:
        return
    options = {}
    for name, option in declared.items():
        one = _type(name, option).schema()
        several = {"type": "array", "items": one, "minItems": SWEPT.minimum, "maxItems": SWEPT.maximum}
        options[name] = {"anyOf": [one, several]}
    yield {
        "type": "object",
        "properties": {"kind": {"const": kind}, **options},
        "required": ["kind"],
        "additionalProperties": False,
    }


def expand(name: str, form: DelegateForm) -> Iterator[DelegateEntry]:
    """One delegate per combination of the options that are lists: `threads: [1, 4]` → `cpu-t1`, `cpu-t4`.

    Raises `ValueError` where that are more than `MOST_COLUMNS`.
    """
    swept = [key for key, value in form.options.items() if isinstance(value, list)]
    columns = [value if isinstance(value, list) else [value] for value in form.options.values()]
    if (count := prod(map(len, columns))) > MOST_COLUMNS:
        lists = " x ".join(f"{key} ({len(columns[list(form.options).index(key)])})" for key in swept)
        raise ValueError(
            f"{lists} make {count} columns; an entry makes at most {MOST_COLUMNS}: shorten a list, or write "
            "the columns that you want one by one"
        )
    for values in product(*columns):
        chosen = dict(zip(form.options, values, strict=True))
        suffix = "".join(f"-{_label(key, chosen[key])}" for key in swept)
        yield DelegateEntry(name + suffix, form.kind, chosen)


def _label(key: str, value: OptionValue) -> str:
    if isinstance(value, bool):
        return key if value else f"no-{key}"
    return f"{_SHORT_NAMES.get(key, '')}{value}"
