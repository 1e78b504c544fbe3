"""Classes of devices: which devices a selector takes, and its text in a cell's target. Pure.

    any:kind=gpu,vendor=NVIDIA*,label.room=a#1      the second of several cells that want any such device

The text can be read back; what is special in it is percent-encoded within values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol
from urllib.parse import quote, unquote

from orchestrator.manifest.campaign import DeviceSelector

ANY = "any:"
_LABEL = "label."
_PLAIN = " *?[]!()/+"


class DeviceLike(Protocol):
    """What a selector looks at."""

    @property
    def device_id(self) -> str:
        """Its id."""

    @property
    def name(self) -> str:
        """Its own name."""

    @property
    def kind(self) -> str:
        """`cpu` or `gpu`."""

    @property
    def vendor(self) -> str:
        """Who made it."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Free words of the operator."""

    @property
    def delegates(self) -> Sequence[str]:
        """Delegate kinds that it hosts."""


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """Any device that a selector takes and that hosts a delegate kind."""

    selector: DeviceSelector
    delegate_kind: str

    @property
    def line(self) -> str:
        """Where the cells that want such a device queue."""
        return f"{ANY}{selector_text(self.selector)}/{self.delegate_kind}"

    def takes(self, device: DeviceLike) -> bool:
        """Whether the device belongs to the class."""
        return self.delegate_kind in device.delegates and matches(device, self.selector)


def parse_line(line: str) -> DeviceClass:
    """The class whose `line` this is. Raises `ValueError`."""
    text, slash, kind = line.removeprefix(ANY).rpartition("/")
    if not is_class(line) or not slash:
        raise ValueError(f"no line of a class: {line!r}")
    return DeviceClass(parse_selector(text), kind)


def matches(device: DeviceLike, selector: DeviceSelector) -> bool:
    """Whether every given field of the selector fits the device; `count` says nothing about one."""
    return (
        selector.kind in (None, device.kind)
        and (selector.vendor is None or fnmatchcase(device.vendor.lower(), selector.vendor.lower()))
        and (selector.name is None or named(device, selector.name))
        and all(device.labels.get(name) == value for name, value in selector.labels.items())
    )


def named(device: DeviceLike, pattern: str) -> bool:
    """Whether a glob fits the device's id or name."""
    return fnmatchcase(device.device_id, pattern) or fnmatchcase(device.name, pattern)


def class_target(selector: DeviceSelector, number: int) -> str:
    """The target of the `number`-th cell (from 0) that wants any device of the class."""
    return f"{ANY}{selector_text(selector)}#{number}"


def is_class(target: str) -> bool:
    """Whether a target or line means any device of a class."""
    return target.startswith(ANY)


def selector_text(selector: DeviceSelector) -> str:
    """The fields in a fixed order, without `count`; `*` for a selector that takes every device."""
    given = {"kind": selector.kind, "vendor": selector.vendor, "name": selector.name}
    fields = {name: value for name, value in given.items() if value is not None}
    fields |= {_LABEL + name: selector.labels[name] for name in sorted(selector.labels)}
    encoded = (f"{quote(name, safe='')}={quote(value, safe=_PLAIN)}" for name, value in fields.items())
    return ",".join(encoded) or "*"


def parse_selector(text: str) -> DeviceSelector:
    """The selector that `selector_text` wrote. Raises `ValueError`."""
    if text == "*":
        return DeviceSelector()
    fields: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"no selector: {text!r}")
        fields[unquote(name)] = unquote(value)
    labels = {name.removeprefix(_LABEL): value for name, value in fields.items() if name.startswith(_LABEL)}
    known = {"kind", "vendor", "name"}
    if unknown := {name for name in fields if not name.startswith(_LABEL)} - known:
        raise ValueError(f"no selector: {text!r} has {sorted(unknown)}")
    return DeviceSelector(fields.get("kind"), fields.get("vendor"), fields.get("name"), labels)
