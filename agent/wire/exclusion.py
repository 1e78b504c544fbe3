"""Exclusion groups as paths: devices that share silicon, and the group that holds several of them."""

from collections.abc import Iterable
from typing import Final

HOST_GROUP: Final = "host-cpu"
"""The group of a host's CPU, which contains every other group of the host."""


def joint_group(groups: Iterable[str]) -> str | None:
    """Return the smallest group that contains all of these; None where they have nothing in common.

    `host` for `host` and `host/gpu-0`, as for `host/gpu-0` and `host/gpu-1`.
    """
    first, *others = (group.split("/") for group in groups)
    common = first
    for parts in others:
        end = next((k for k, pair in enumerate(zip(common, parts, strict=False)) if pair[0] != pair[1]), None)
        common = common[: min(len(common), len(parts)) if end is None else end]
    return "/".join(common) or None
