"""Every small change of one function: a condition negated, a bound moved, an operand or a statement dropped.

Left out are changes that decide nothing: of texts, of log calls, of what stands in the message of an error.
"""

from __future__ import annotations

import ast
import copy
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

_SWAPPED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_ORDERED: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_LEFT_OUT: Final = ("annotation", "returns", "keywords")
_DROPPED: Final = (ast.Raise, ast.AugAssign, ast.Delete, ast.Break, ast.Continue)

Change = Callable[[Any], None]
"""Changes a node in place."""


def mutations(source: str, function: str) -> Iterator[tuple[str, str]]:
    """Yield each change of a function (`name` or `Class.name`) and the text of the module with it.

    Raises `LookupError` where the module has no such function.
    """
    original = _find(ast.parse(source), function)
    lines = source.splitlines(keepends=True)
    first = min(node.lineno for node in (original, *original.decorator_list)) - 1
    seen: Counter[str] = Counter()
    for index, node in enumerate(_nodes(original)):
        for what, change in _changes(node):
            changed = copy.deepcopy(original)
            change(_nodes(changed)[index])
            text = textwrap.indent(ast.unparse(ast.fix_missing_locations(changed)), " " * original.col_offset)
            seen[what] += 1
            number = f" ({seen[what]})" if seen[what] > 1 else ""
            yield what + number, "".join([*lines[:first], text, "\n", *lines[original.end_lineno :]])


def _find(module: ast.Module, function: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    scope: Any = module
    for name in function.split("."):
        found = [node for node in scope.body if getattr(node, "name", None) == name]
        if not found:
            raise LookupError(function)
        scope = found[0]
    return scope  # type: ignore[no-any-return]  # named as a function by the catalogue


def _nodes(function: ast.AST) -> list[ast.AST]:
    """Return the nodes that decide, in a fixed order: without annotations, keywords, log calls and errors'
    texts.
    """
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [function]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, ast.Raise) and not _is_log(node):
            waiting += [child for name, child in _children(node) if name not in _LEFT_OUT]
    return found


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield name, child


def _changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if not _flips(test):
            yield f"{_line(test)} -> not", _negate("test")
        case ast.match_case(guard=ast.expr() as guard):
            yield f"{_line(guard)} -> not", _negate("guard")
        case ast.comprehension(ifs=ifs):
            yield from ((f"without if {_line(ifs[k])}", _drop("ifs", k)) for k in range(len(ifs)))
        case ast.Compare(ops=ops):
            yield from (_shown(node, _swap(k)) for k in range(len(ops)))
        case ast.BoolOp(values=values):
            yield from (_shown(node, _drop("values", k)) for k in range(len(values)))
        case ast.Constant(value=bool() | int()):
            yield _shown(node, _other_constant)
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            yield _shown(node, _other_sign)
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        for k, statement in enumerate(block if isinstance(block, list) else ()):
            if _acts(statement):
                yield f"without {_line(statement)}", _pass(name, k)


def _shown(node: ast.AST, change: Change) -> tuple[str, Change]:
    changed = copy.deepcopy(node)
    change(changed)
    return f"{_line(node)} -> {_line(changed)}", change


def _line(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _flips(test: ast.expr) -> bool:
    """Whether swapping its one comparison is the same as negating the condition."""
    return isinstance(test, ast.Compare) and len(test.ops) == 1 and not isinstance(test.ops[0], _ORDERED)


def _acts(statement: ast.stmt) -> bool:
    """Whether the function can go on without the statement, and something is missing then."""
    match statement:
        case ast.Expr(value=ast.Call() | ast.Await() | ast.Yield()):
            return not _is_log(statement)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            return True
    return isinstance(statement, _DROPPED)


def _is_log(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="log")))):
            return True
    return False


def _negate(name: str) -> Change:
    return lambda node: setattr(node, name, ast.UnaryOp(ast.Not(), getattr(node, name)))


def _drop(name: str, k: int) -> Change:
    return lambda node: getattr(node, name).pop(k)


def _swap(k: int) -> Change:
    def change(node: Any) -> None:
        node.ops[k] = _SWAPPED[type(node.ops[k])]()

    return change


def _pass(name: str, k: int) -> Change:
    def change(node: Any) -> None:
        getattr(node, name)[k] = ast.Pass()

    return change


def _other_constant(node: Any) -> None:
    node.value = not node.value if isinstance(node.value, bool) else node.value + 1


def _other_sign(node: Any) -> None:
    node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
