"""Expressions of C as expressions of WGSL, and the statements that must go ahead of them.

C evaluates one side of `?:` only, WGSL's `select` both: where a side reads memory, an `if` goes ahead of the
statement and leaves the result in a variable.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from pycparser import c_ast

from runtime.delegates.gpu.backends.webgpu.wgsl import builtins, places, types
from runtime.delegates.gpu.backends.webgpu.wgsl.parse import OutsideSubsetError
from runtime.delegates.gpu.backends.webgpu.wgsl.scope import Scope, Writer
from runtime.delegates.gpu.backends.webgpu.wgsl.values import (
    Value,
    binary,
    chosen,
    converted,
    truth,
    unary,
    whole,
)


class Functions(Protocol):
    """The functions of the kernel's text that a call may mean."""

    access: places.Accesses

    def call(self, name: str, arguments: Sequence[Value], coordinate: object) -> Value | None:
        """Translate a call of the function of this name; None if the text has none."""

    def element(self, node: c_ast.Node) -> types.Number | types.Narrow | types.Void:
        """Return the type that a type's node names, which is no pointer and no array."""

    def retyped(self, pointer: Value, pointed: c_ast.Node) -> Value:
        """Convert a pointer to one to the type that a node names."""


class Expressions:
    """Translates expressions in one function."""

    def __init__(self, functions: Functions, scope: Scope, writer: Writer) -> None:
        self.functions = functions
        self.scope = scope
        self.writer = writer
        self.access = functions.access

    def value(self, node: Any) -> Value:
        """Translate an expression and return its value.

        Raises `OutsideSubsetError` with the place of what has no meaning in the subset.
        """
        handler = getattr(self, f"_{type(node).__name__.lower()}", None)
        if handler is None:
            raise OutsideSubsetError(node.coord, f"an expression of the kind {type(node).__name__}")
        try:
            found: Value = handler(node)
        except TypeError as error:
            raise OutsideSubsetError(node.coord, str(error)) from error
        return found

    def number(self, node: Any, to: types.Number) -> Value:
        """Translate an expression and return its value, converted to a type."""
        value = self.value(node)
        try:
            return converted(value, to)
        except TypeError as error:
            raise OutsideSubsetError(node.coord, str(error)) from error

    def place(self, node: Any) -> places.Place:
        """Return the assignable place that an expression names. Raises `OutsideSubsetError`."""
        if isinstance(node, c_ast.ID):
            variable = self.scope.find(node.name)
            if variable is None:
                raise OutsideSubsetError(node.coord, f"the name {node.name}")
            return variable
        if isinstance(node, c_ast.ArrayRef):
            return self._element(node)
        if isinstance(node, c_ast.UnaryOp) and node.op == "*":
            pointer = self.value(node.expr)
            if isinstance(pointer.type, types.Pointer):
                return places.InBuffer(pointer.type, pointer.text)
        if isinstance(node, c_ast.StructRef) and node.type == ".":
            return self._lanes(node)
        raise OutsideSubsetError(node.coord, "an assignment to such an expression")

    def _element(self, node: c_ast.ArrayRef) -> places.Place:
        index = self.number(node.subscript, types.Number(types.INT))
        if isinstance(node.name, c_ast.ID | c_ast.ArrayRef):
            outer = self.place(node.name)
            if isinstance(outer, places.Variable) and isinstance(outer.type, types.Array):
                return places.element_of(outer, index)
        pointer = self.value(node.name)
        if not isinstance(pointer.type, types.Pointer):
            raise OutsideSubsetError(node.coord, "an index into what is neither a buffer nor an array")
        return places.InBuffer(pointer.type, places.advanced(pointer, index).text)

    def _lanes(self, node: c_ast.StructRef) -> places.Lanes:
        whole_vector = self.place(node.name)
        field = node.field.name
        if isinstance(whole_vector, places.Lanes) or not isinstance(whole_vector.type, types.Number):
            raise OutsideSubsetError(node.coord, f"the member .{field}")
        return places.Lanes(whole_vector, places.lanes_of(field, whole_vector.type.width))

    def _id(self, node: c_ast.ID) -> Value:
        variable = self.scope.find(node.name)
        if variable is not None:
            return self._decayed(variable, node)
        if node.name in builtins.CONSTANTS:
            return builtins.CONSTANTS[node.name]
        raise OutsideSubsetError(node.coord, f"the name {node.name}")

    def _decayed(self, variable: places.Place, node: c_ast.Node) -> Value:
        """Return a variable's value; an array of a work-group is a pointer to its first element."""
        if isinstance(variable, places.Variable) and isinstance(variable.type, types.Array):
            if variable.type.buffer is None or not isinstance(variable.type.element, types.Number):
                raise OutsideSubsetError(node.coord, "an array as a value")
            return Value("0", types.Pointer(variable.type.buffer, variable.type.element), 0)
        return variable.load(self.access)

    def _arrayref(self, node: c_ast.ArrayRef) -> Value:
        return self._decayed(self._element(node), node)

    def _structref(self, node: c_ast.StructRef) -> Value:
        field = node.field.name
        if node.type != ".":
            raise OutsideSubsetError(node.coord, f"the member ->{field}")
        vector = self.value(node.name)
        lanes = places.lanes_of(field, vector.number.width)
        return Value(
            f"{vector.text}.{lanes}", types.Number(vector.number.kind, len(lanes)), None, vector.reads_memory
        )

    def _constant(self, node: c_ast.Constant) -> Value:
        text = node.value.lower()
        if node.type in ("float", "double"):
            if not text.endswith("f"):
                raise OutsideSubsetError(node.coord, f"the number {node.value} of double precision")
            return Value(text, types.Number(types.FLOAT))
        if "int" not in node.type or "l" in text:
            raise OutsideSubsetError(node.coord, f"the literal {node.value}")
        digits = text.rstrip("u")
        # Base 0 understands `0x`, but refuses C's octal notation.
        octal = digits.startswith("0") and digits.isdecimal() and len(digits) > 1
        return whole(int(digits, 8 if octal else 0), types.UINT if text.endswith("u") else None)

    def _unaryop(self, node: c_ast.UnaryOp) -> Value:
        if node.op == "*":
            return self.place(node).load(self.access)
        if node.op == "&":
            place = self.place(node.expr)
            if isinstance(place, places.InBuffer):
                return Value(place.index, place.pointer)
            raise OutsideSubsetError(node.coord, "the address of a variable")
        if node.op not in ("-", "+", "~", "!"):
            raise OutsideSubsetError(node.coord, f"{node.op} within an expression")
        return unary(node.op, self.value(node.expr))

    def _binaryop(self, node: c_ast.BinaryOp) -> Value:
        if node.op in ("&&", "||"):
            return self._logical(node)
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(left.type, types.Pointer) or isinstance(right.type, types.Pointer):
            return self._on_pointers(node, left, right)
        return binary(node.op, left, right)

    def _on_pointers(self, node: c_ast.BinaryOp, left: Value, right: Value) -> Value:
        if node.op in ("==", "!=") and 0 in (left.literal, right.literal):
            # A buffer is always bound.
            return (
                Value("false", types.Number(types.BOOL), 0)
                if node.op == "=="
                else Value("true", types.Number(types.BOOL), 1)
            )
        if node.op == "+" and isinstance(right.type, types.Pointer):
            left, right = right, left
        if node.op not in ("+", "-") or isinstance(right.type, types.Pointer):
            raise OutsideSubsetError(node.coord, f"{node.op} between pointers")
        count = converted(right, types.Number(types.INT))
        return places.advanced(left, unary("-", count) if node.op == "-" else count)

    def _logical(self, node: c_ast.BinaryOp) -> Value:
        left = truth(self.value(node.left))
        if left.literal is not None and bool(left.literal) == (node.op == "||"):
            return left
        # Statements that the right side needs must run only where C would evaluate it.
        with self.writer.aside() as ahead:
            self.writer.depth += 1
            right = truth(self.value(node.right))
            self.writer.depth -= 1
        if left.literal is not None and not ahead:
            return right
        reads = left.reads_memory or right.reads_memory
        if not ahead:
            return Value(f"({left.text} {node.op} {right.text})", types.Number(types.BOOL), None, reads)
        name = self.writer.fresh()
        self.writer.line(f"var {name}: bool = {left.text};")
        self.writer.line(f"if ({name if node.op == '&&' else f'!{name}'}) {{")
        self.writer.lines += ahead
        self.writer.line(f"    {name} = {right.text};")
        self.writer.line("}")
        return Value(name, types.Number(types.BOOL))

    def _ternaryop(self, node: c_ast.TernaryOp) -> Value:
        condition = self.value(node.cond)
        if condition.literal is not None:
            return self.value(node.iftrue if condition.literal else node.iffalse)
        with self.writer.aside() as ahead_true:
            self.writer.depth += 1
            where = self.value(node.iftrue)
        with self.writer.aside() as ahead_false:
            otherwise = self.value(node.iffalse)
            self.writer.depth -= 1
        if isinstance(where.type, types.Pointer):
            return _chosen_place(condition, where, otherwise)
        selected = chosen(condition, where, otherwise)
        is_simple = not (ahead_true or ahead_false or where.reads_memory or otherwise.reads_memory)
        # A choice by lanes evaluates both sides in OpenCL C as well.
        if is_simple or condition.number.width > 1:
            # They were indented for an `if` that turns out not to be needed.
            self.writer.lines += [line.removeprefix("    ") for line in ahead_true + ahead_false]
            return selected
        name = self.writer.fresh()
        self.writer.line(f"var {name}: {selected.number.wgsl};")
        self.writer.line(f"if ({truth(condition).text}) {{")
        self.writer.lines += ahead_true
        self.writer.line(f"    {name} = {converted(where, selected.number).text};")
        self.writer.line("} else {")
        self.writer.lines += ahead_false
        self.writer.line(f"    {name} = {converted(otherwise, selected.number).text};")
        self.writer.line("}")
        return Value(name, selected.type)

    def _cast(self, node: c_ast.Cast) -> Value:
        declared = node.to_type.type
        if isinstance(declared, c_ast.PtrDecl):
            pointer = self.value(node.expr)
            if not isinstance(pointer.type, types.Pointer):
                raise OutsideSubsetError(node.coord, "a pointer made of a number")
            return places.recast(pointer, self.functions.element(declared.type))
        to = self.functions.element(declared)
        if not isinstance(to, types.Number):
            raise OutsideSubsetError(node.coord, "a conversion to such a type")
        if isinstance(node.expr, c_ast.ExprList):
            return self._vector(node.expr, to)
        value = self.value(node.expr)
        # In C a comparison already yields an int, so this is no cast between different kinds.
        if to.kind == types.INT and value.number.kind == types.BOOL and to.width == value.number.width:
            return converted(value, to)
        if 1 < value.number.width == to.width and value.number.kind != to.kind:
            raise OutsideSubsetError(node.coord, "a cast between vectors (convert_ is meant)")
        return converted(value, to)

    def _vector(self, parts: c_ast.ExprList, to: types.Number) -> Value:
        """Build a vector of its lanes, or of smaller vectors."""
        values = [self.value(part) for part in parts.exprs]
        lanes = [converted(value, types.Number(to.kind, value.number.width)) for value in values]
        if sum(lane.number.width for lane in lanes) != to.width:
            raise OutsideSubsetError(parts.coord, f"a vector of {to.width} of another number of lanes")
        reads = any(lane.reads_memory for lane in lanes)
        return Value(f"{to.wgsl}({', '.join(lane.text for lane in lanes)})", to, None, reads)

    def _funccall(self, node: c_ast.FuncCall) -> Value:
        name = node.name.name
        arguments = [self.value(argument) for argument in node.args.exprs] if node.args else []
        found = self.functions.call(name, arguments, node.coord)
        if found is None:
            found = builtins.call(name, arguments, self.access)
        if found is None:
            raise OutsideSubsetError(node.coord, f"the function {name}")
        return found


def _chosen_place(condition: Value, where: Value, otherwise: Value) -> Value:
    if where.type != otherwise.type:
        raise TypeError("a choice between pointers into different buffers")
    text = f"select({otherwise.text}, {where.text}, {truth(condition).text})"
    return Value(text, where.type, None, True)
