"""Delegate kinds and their options, as far as a campaign file can be checked without running them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from itertools import product
from typing import Any

import yaml

from orchestrator.manifest.campaign import DelegateEntry, OptionValue
from orchestrator.manifest.problems import Problems, suggestion
from orchestrator.manifest.readers import Reader, choice, entries, listing, number, option_value, yes_or_no

ENTRY_POINT_GROUP = "delegate_farm.delegates"

_THREADS: Reader[Any] = number(whole=True, minimum=1, maximum=1024)
_SHORT_NAMES = {"threads": "t"}

OPTIONS: dict[str, dict[str, Reader[Any]]] = {
    "cpu": {"threads": _THREADS},
    "gpu": {
        "threads": _THREADS,
        "precision": choice(("fp32",), "precision"),
        "tuning": choice(("none", "fast", "exhaustive"), "tuning"),
        "persistent": choice(("auto", "off", "on"), "persistent"),
        "max_delegated_partitions": number(whole=True, minimum=1, maximum=10_000),
        "require_full_delegation": yes_or_no,
    },
    "litert": {"threads": _THREADS, "resolver": choice(("xnnpack", "builtin", "reference"), "resolver")},
}
"""Options of the delegates that come with the farm; those of other kinds are checked where they run.

The device and the cache folders of a cell are the farm's to choose, so they are no options here.
"""


@dataclass(frozen=True, slots=True)
class DelegateForm:
    """A delegate as written: an option may be a list of values."""

    kind: str
    options: Mapping[str, OptionValue | list[OptionValue]]


@cache
def known_kinds() -> tuple[str, ...]:
    """`cpu` and every delegate that is installed as an entry point; no delegate is imported."""
    return tuple(sorted({"cpu"} | {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}))


def delegate(node: yaml.Node, problems: Problems) -> DelegateForm | None:
    """Reads `{kind: cpu, threads: [1, 4]}`."""
    found = entries(node, problems)
    if found is None:
        return None
    if "kind" not in found:
        problems.add(node, "missing key 'kind'")
        return None
    kind = choice(known_kinds(), "delegate kind")(found.pop("kind")[1], problems)
    if kind is None:
        return None
    known = OPTIONS.get(kind)
    options: dict[str, OptionValue | list[OptionValue]] = {}
    for key, (key_node, value_node) in found.items():
        if known is not None and key not in known:
            problems.add(
                key_node, f"unknown option {key!r} of delegate kind {kind!r}{suggestion(key, known)}"
            )
            continue
        reader: Reader[Any] = option_value if known is None else known[key]
        if isinstance(value_node, yaml.SequenceNode):
            reader = listing(reader, minimum=1, maximum=32)
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
