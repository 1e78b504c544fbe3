"""Discovers the kernel families of this folder and its subfolders: every module with a `FAMILY`.

Several families may run one operator, each for other types of its first input.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import walk_packages

from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import Custom, Graph, Kind, Node
from runtime.delegates.gpu.lowering.spec import Family
from runtime.model.graph import Operator
from runtime.model.schema import BuiltinOperator

_CUSTOM = {kind.value: kind for kind in Custom}


@cache
def families() -> dict[Kind, tuple[Family, ...]]:
    """Kind of operator → the families that run it.

    Raises RuntimeError where two modules claim an operator for one type of its first input.
    """
    found: dict[Kind, tuple[Family, ...]] = {}
    for module in sorted(walk_packages(__path__, f"{__name__}."), key=lambda item: item.name):
        family = getattr(import_module(module.name), "FAMILY", None)
        if family is None:
            continue
        for operator in family.operators:
            taken = {element for other in found.get(operator, ()) for element in _first(other, operator)}
            if taken & {*_first(family, operator)}:
                raise RuntimeError(f"two kernel families claim {operator.name}; the second is {module.name}")
            found[operator] = (*found.get(operator, ()), family)
    return found


def _first(family: Family, kind: Kind) -> tuple[ElementType, ...]:
    return family.types_of(kind).of_input(0)


def family_for(kind: Kind, element: ElementType | None) -> Family | None:
    """Return the family that runs an operator whose first input has this type; None if there is none.

    An operator that one family runs alone is its, whatever the type.
    """
    claims = families().get(kind, ())
    if len(claims) == 1:
        return claims[0]
    return next((family for family in claims if element in _first(family, kind)), None)


def family_of(node: Node, graph: Graph) -> Family:
    """Return the family that runs a node. Raises ValueError if none does."""
    found = family_for(node.op, graph.values[(*node.reads, *node.outputs)[0]].type)
    if found is None:
        raise ValueError(f"no kernel family runs {node.op.name} of this type")
    return found


def kind_of(operator: Operator) -> Kind:
    """Return the key of an operator's family; CUSTOM, which has none, for a custom operator without
    kernels.
    """
    if operator.opcode is not BuiltinOperator.CUSTOM:
        return operator.opcode
    return _CUSTOM.get(operator.name, BuiltinOperator.CUSTOM)
