"""Discovers the kernel families of this folder: every module with a `FAMILY`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from runtime.delegates.opencl.lowering.spec import Family
from runtime.model.schema import BuiltinOperator


@cache
def families() -> dict[BuiltinOperator, Family]:
    """Operator → its family. Raises RuntimeError where two modules claim one operator."""
    found: dict[BuiltinOperator, Family] = {}
    for module in sorted(iter_modules(__path__), key=lambda item: item.name):
        family = getattr(import_module(f"{__name__}.{module.name}"), "FAMILY", None)
        if family is None:
            continue
        for operator in family.operators:
            if operator in found:
                raise RuntimeError(f"two kernel families claim {operator.name}; the second is {module.name}")
            found[operator] = family
    return found
