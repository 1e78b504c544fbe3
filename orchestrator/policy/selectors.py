"""Matches devices to selectors, and writes a selector as the text in a cell's target. Pure.

    any:kind=gpu,vendor=NVIDIA*,label.room=a#1      the second of several cells that want any such device

The text can be parsed again; characters with a meaning in it are percent-encoded within values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol
from urllib.parse import quote, unquote

from orchestrator.manifest.campaign import DeviceSelector

ANY = "any:"
"""The beginning of every target and line that means a class; no device id begins with it."""

_LABEL = "label."
"""Prefix that distinguishes a label from a field of the same name, such as a label `kind`."""

_PLAIN = " *?[]!()/+"
"""Characters of globs and names that stay readable in a value; `,`, `=`, `#` and `%` have a meaning in the
text."""


class DeviceLike(Protocol):
    """The properties of a device that a selector compares, and that decide what it is compared with."""

    @property
    def device_id(self) -> str:
        """The id, such as `host-cpu`."""

    @property
    def name(self) -> str:
        """The name that the kernel or the driver gives it."""

    @property
    def kind(self) -> str:
        """`cpu` or `gpu`."""

    @property
    def vendor(self) -> str:
        """The manufacturer."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels that an operator gave it, by name."""

    @property
    def delegates(self) -> Sequence[str]:
        """The delegate kinds that it hosts."""

    @property
    def exclusion_group(self) -> str:
        """The path of what it shares silicon with."""


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """The devices that a selector takes and that host a delegate kind."""

    selector: DeviceSelector
    delegate_kind: str

    @property
    def line(self) -> str:
        """The queue of the cells that want such a device."""
        return f"{ANY}{selector_text(self.selector)}/{self.delegate_kind}"

    def takes(self, device: DeviceLike) -> bool:
        """Whether the device belongs to the class."""
        return self.delegate_kind in device.delegates and matches(device, self.selector)


def parse_line(line: str) -> DeviceClass:
    """Return the class that has this `line`. Raises `ValueError`."""
    # The last slash: a value may have some.
    text, slash, kind = line.removeprefix(ANY).rpartition("/")
    if not is_class(line) or not slash:
        raise ValueError(f"no line of a class: {line!r}")
    return DeviceClass(parse_selector(text), kind)


def matches(device: DeviceLike, selector: DeviceSelector) -> bool:
    """Whether every given field of the selector fits the device; `count` is ignored."""
    # Vendors are compared without case: a user writes `nvidia*` where the driver says `NVIDIA Corporation`.
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
    """Return the target of the `number`-th cell (from 0) that wants any device of the class."""
    return f"{ANY}{selector_text(selector)}#{number}"


def class_line(target: str, delegate_kind: str) -> str:
    """Return the queue of the cells that want any device of a target's class, as `DeviceClass.line`."""
    # A `#` within a value is encoded, so there is one.
    return f"{target.rpartition('#')[0]}/{delegate_kind}"


def is_class(target: str) -> bool:
    """Whether a target or line means any device of a class."""
    return target.startswith(ANY)


def selector_text(selector: DeviceSelector) -> str:
    """Write the fields in a fixed order, without `count`; `*` for a selector that takes every device."""
    given = {"kind": selector.kind, "vendor": selector.vendor, "name": selector.name}
    fields = {name: value for name, value in given.items() if value is not None}
    fields |= {_LABEL + name: selector.labels[name] for name in sorted(selector.labels)}
    encoded = (f"{quote(name, safe='')}={quote(value, safe=_PLAIN)}" for name, value in fields.items())
    return ",".join(encoded) or "*"


def parse_selector(text: str) -> DeviceSelector:
    """Parse the text that `selector_text` wrote. Raises `ValueError`."""
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
