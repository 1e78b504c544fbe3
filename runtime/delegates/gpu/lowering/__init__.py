"""Discovers the kernel families of this folder and its subfolders: every module with a `FAMILY`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import walk_packages

from runtime.delegates.gpu.graph import Custom, Kind
from runtime.delegates.gpu.lowering.spec import Family
from runtime.model.graph import Operator
from runtime.model.schema import BuiltinOperator

_CUSTOM = {kind.value: kind for kind in Custom}


@cache
def families() -> dict[Kind, Family]:
    """Kind of operator → its family. Raises RuntimeError where two modules claim one operator."""
    found: dict[Kind, Family] = {}
    for module in sorted(walk_packages(__path__, f"{__name__}."), key=lambda item: item.name):
        family = getattr(import_module(module.name), "FAMILY", None)
        if family is None:
            continue
        for operator in family.operators:
            if operator in found:
                raise RuntimeError(f"two kernel families claim {operator.name}; the second is {module.name}")
            found[operator] = family
    return found


def kind_of(operator: Operator) -> Kind:
    """The key of an operator's family; CUSTOM, which has none, for a custom operator without kernels."""
    if operator.opcode is not BuiltinOperator.CUSTOM:
        return operator.opcode
    return _CUSTOM.get(operator.name, BuiltinOperator.CUSTOM)
