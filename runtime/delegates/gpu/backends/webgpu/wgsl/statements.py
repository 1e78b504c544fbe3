"""Statements of C as statements of WGSL."""

from collections.abc import Callable
from typing import Any

from pycparser import c_ast

from runtime.delegates.gpu.backends.webgpu.wgsl import builtins
from runtime.delegates.gpu.backends.webgpu.wgsl.expressions import Expressions
from runtime.delegates.gpu.backends.webgpu.wgsl.parse import LOCAL, OutsideSubsetError
from runtime.delegates.gpu.backends.webgpu.wgsl.places import Place, Variable, advanced
from runtime.delegates.gpu.backends.webgpu.wgsl.scope import named
from runtime.delegates.gpu.backends.webgpu.wgsl.types import INT, Array, Buffer, Number, Pointer, Type, Void
from runtime.delegates.gpu.backends.webgpu.wgsl.values import Value, binary, converted, truth, unary, whole

_BARRIERS = {"CLK_LOCAL_MEM_FENCE": "workgroupBarrier();", "CLK_GLOBAL_MEM_FENCE": "storageBarrier();"}

_UNROLLED = "unroll"
"""The only pragma. WGSL has no word for it: where the turns of the loop behind it are known, they are written
out, since compilers keep an array in registers whose places are all known."""

_MOST_TURNS = 64
"""Turns that are written out at most: more make long texts, and spare little for each turn."""


class Statements(Expressions):
    """Translates the body of one function, which returns a value of `result`.

    `share` makes an array of the work-group, which WGSL declares outside of functions.
    """

    def __init__(self, *context: Any, result: Type, share: Callable[[str, Array], Buffer]) -> None:
        super().__init__(*context)
        self.result = result
        self.share = share
        self._is_unrolled = False

    def body(self, node: c_ast.Compound) -> None:
        """Translate the statements of a block, without its braces."""
        with self.scope.block():
            for item in node.block_items or []:
                self.statement(item)

    def statement(self, node: Any) -> None:
        """Translate one statement. Raises `OutsideSubsetError`."""
        handler = getattr(self, f"_do_{type(node).__name__.lower()}", None)
        if handler is None:
            raise OutsideSubsetError(node.coord, f"a statement of the kind {type(node).__name__}")
        try:
            handler(node)
        except TypeError as error:
            raise OutsideSubsetError(node.coord, str(error)) from error

    def _do_compound(self, node: c_ast.Compound) -> None:
        with self.writer.block(""):
            self.body(node)

    def _do_emptystatement(self, node: c_ast.EmptyStatement) -> None:
        pass

    def _do_pragma(self, node: c_ast.Pragma) -> None:
        words = node.string.split()
        if words[:1] != [_UNROLLED]:
            raise OutsideSubsetError(node.coord, f"#pragma {node.string}")
        # `unroll` with a number, such as `unroll 8`, keeps the loop.
        self._is_unrolled = len(words) == 1

    def _do_decllist(self, node: c_ast.DeclList) -> None:
        for declaration in node.decls:
            self._do_decl(declaration)

    def _do_decl(self, node: c_ast.Decl) -> None:
        if LOCAL in node.storage:
            array = self._array(node.type)
            if not isinstance(array, Array):
                raise OutsideSubsetError(node.coord, "local memory that is no array")
            buffer = self.share(node.name, array)
            self.scope.declare(node.name, Variable(buffer.name, _shared(array, buffer)))
        elif isinstance(node.type, c_ast.ArrayDecl):
            self._declare_array(node)
        elif isinstance(node.type, c_ast.PtrDecl):
            self._declare_pointer(node)
        else:
            self._declare_number(node)

    def _array(self, node: Any) -> Number | Array:
        if not isinstance(node, c_ast.ArrayDecl):
            element = self.functions.element(node)
            if not isinstance(element, Number):
                raise OutsideSubsetError(node.coord, "an array of such elements")
            return element
        length = self.value(node.dim).literal if node.dim else None
        if not length or length < 1:
            raise OutsideSubsetError(node.coord, "an array whose length is not known at compile time")
        return Array(self._array(node.type), length)

    def _declare_array(self, node: c_ast.Decl) -> None:
        array = self._array(node.type)
        assert isinstance(array, Array)
        text = f"var {named(node.name)}: {array.wgsl}"
        if node.init is not None:
            if not isinstance(array.element, Number) or len(node.init.exprs) != array.length:
                raise OutsideSubsetError(node.coord, "an array whose initial values are not all given")
            values = [self.number(value, array.element).text for value in node.init.exprs]
            text += f" = {array.wgsl}({', '.join(values)})"
        self.writer.line(f"{text};")
        self.scope.declare(node.name, Variable(named(node.name), array))

    def _declare_pointer(self, node: c_ast.Decl) -> None:
        """Declare a variable that counts elements; its buffer is that of its initial value, for good."""
        if node.init is None:
            raise OutsideSubsetError(node.coord, f"the pointer {node.name} without an initial value")
        value = self.value(node.init)
        if not isinstance(value.type, Pointer):
            raise OutsideSubsetError(node.coord, "a pointer made of a number")
        pointer = self.functions.retyped(value, node.type.type)
        self.writer.line(f"var {named(node.name)}: i32 = {pointer.text};")
        self.scope.declare(node.name, Variable(named(node.name), pointer.type))

    def _declare_number(self, node: c_ast.Decl) -> None:
        number = self.functions.element(node.type)
        if not isinstance(number, Number):
            raise OutsideSubsetError(node.coord, f"a variable of the type of {node.name}")
        text = f"var {named(node.name)}: {number.wgsl}"
        if node.init is not None:
            text += f" = {self.number(node.init, number).text}"
        self.writer.line(f"{text};")
        self.scope.declare(node.name, Variable(named(node.name), number))

    def _do_assignment(self, node: c_ast.Assignment) -> None:
        self._store(*self._changed(node), node)

    def _do_unaryop(self, node: c_ast.UnaryOp) -> None:
        self._store(*self._changed(node), node)

    def _changed(self, node: Any) -> tuple[Place, Value]:
        """Return the place that an assignment, `++` or `--` changes, and its new value."""
        if isinstance(node, c_ast.Assignment):
            place, value = self.place(node.lvalue), self.value(node.rvalue)
            return place, value if node.op == "=" else self._combined(place, node.op[:-1], value)
        if node.op not in ("++", "p++", "--", "p--"):
            raise OutsideSubsetError(node.coord, "an expression without an effect")
        place = self.place(node.expr)
        return place, self._combined(place, node.op.strip("p")[0], whole(1))

    def _combined(self, place: Place, operator: str, value: Value) -> Value:
        given = place.load(self.access)
        if isinstance(given.type, Pointer):
            count = converted(value, Number(INT))
            return advanced(given, unary("-", count) if operator == "-" else count)
        return binary(operator, given, value)

    def _store(self, place: Place, value: Value, node: c_ast.Node) -> None:
        if isinstance(place.type, Pointer):
            if value.type != place.type:
                raise OutsideSubsetError(node.coord, "a pointer that moves to another buffer")
            self.writer.line(place.store(value, self.access))
            return
        if not isinstance(place.type, Number):
            raise OutsideSubsetError(node.coord, "an assignment to an array")
        self.writer.line(place.store(converted(value, place.type), self.access))

    def _do_cast(self, node: c_ast.Cast) -> None:
        """`(void)name;` says that a name is unused."""
        if not isinstance(self.functions.element(node.to_type.type), Void):
            raise OutsideSubsetError(node.coord, "an expression without an effect")

    def _do_funccall(self, node: c_ast.FuncCall) -> None:
        name = node.name.name
        if name in ("barrier", "work_group_barrier"):
            fences = {part.name for part in _identifiers(node)} & _BARRIERS.keys()
            for fence in sorted(fences):
                self.writer.line(_BARRIERS[fence])
            if not fences:
                raise OutsideSubsetError(node.coord, "a barrier of other memory")
            return
        arguments = [self.value(argument) for argument in node.args.exprs] if node.args else []
        stored = builtins.store(name, arguments, self.access)
        if stored is not None:
            self.writer.line(stored)
            return
        called = self.functions.call(name, arguments, node.coord)
        if called is None:
            raise OutsideSubsetError(node.coord, f"the function {name} as a statement")
        self.writer.line(f"{called.text};" if isinstance(called.type, Void) else f"_ = {called.text};")

    def _do_return(self, node: c_ast.Return) -> None:
        if node.expr is None:
            self.writer.line("return;")
        elif isinstance(self.result, Number):
            self.writer.line(f"return {self.number(node.expr, self.result).text};")
        else:
            raise OutsideSubsetError(node.coord, "a result of such a type")

    def _do_break(self, node: c_ast.Break) -> None:  # noqa: ARG002 - as all statements
        self.writer.line("break;")

    def _do_continue(self, node: c_ast.Continue) -> None:  # noqa: ARG002 - as all statements
        self.writer.line("continue;")

    def _do_if(self, node: c_ast.If) -> None:
        condition = truth(self.value(node.cond))
        if condition.literal is not None:
            chosen = node.iftrue if condition.literal else node.iffalse
            if chosen is not None:
                self._block_of("", chosen)
            return
        self._block_of(f"if ({condition.text})", node.iftrue)
        if node.iffalse is not None:
            self._block_of("else", node.iffalse)

    def _block_of(self, head: str, node: Any) -> None:
        with self.writer.block(head), self.scope.block():
            for item in (node.block_items or []) if isinstance(node, c_ast.Compound) else [node]:
                self.statement(item)

    def _do_for(self, node: c_ast.For) -> None:
        is_unrolled, self._is_unrolled = self._is_unrolled, False
        turns = self._turns(node) if is_unrolled else None
        if turns is not None:
            for turn in turns:
                with self.scope.block():
                    self.scope.declare(node.init.decls[0].name, turn)
                    self._block_of("", node.stmt)
            return
        with self.writer.block(""), self.scope.block():
            for part in _parts(node.init):
                self.statement(part)
            self._loop(node.cond, node.stmt, _parts(node.next))

    def _turns(self, node: c_ast.For) -> list[Variable] | None:
        """Return what a loop's variable is in each turn; None where that is not known here."""
        declared = node.init.decls if isinstance(node.init, c_ast.DeclList) else []
        steps = _parts(node.next)
        if len(declared) != 1 or len(steps) != 1 or declared[0].init is None or node.cond is None:
            return None
        name, value = declared[0].name, self.value(declared[0].init)
        # Once written out there is no loop left to break out of, nor a variable to change.
        if name in assigned(node.stmt) or _is_left(node.stmt):
            return None
        turns: list[Variable] = []
        while value.literal is not None and len(turns) <= _MOST_TURNS:
            turn = Variable(value.text, value.type, literal=value.literal)
            with self.scope.block():
                self.scope.declare(name, turn)
                holds = truth(self.value(node.cond)).literal
                if not holds:
                    return None if holds is None else turns
                turns.append(turn)
                value = self._changed(steps[0])[1]
        return None

    def _do_while(self, node: c_ast.While) -> None:
        self._loop(node.cond, node.stmt, [])

    def _do_dowhile(self, node: c_ast.DoWhile) -> None:
        with self.writer.block("loop"):
            self._block_of("", node.stmt)
            with self.writer.block("continuing"):
                condition = truth(self.value(node.cond))
                # WGSL's `break if` may only end a `continuing` block.
                self.writer.line(f"break if !({condition.text});")

    def _loop(self, condition: Any, body: Any, updates: list[Any]) -> None:
        """`loop` with its `continuing` block, which a `continue` of C reaches as well."""
        with self.writer.block("loop"):
            if condition is not None:
                # Inside the loop, because statements that the condition needs must run in every turn.
                holds = truth(self.value(condition))
                if holds.literal != 1:
                    self.writer.line(f"if (!{holds.text}) {{ break; }}")
            self._block_of("", body)
            if updates:
                with self.writer.block("continuing"):
                    for update in updates:
                        self.statement(update)


def _parts(node: Any) -> list[Any]:
    if node is None:
        return []
    return list(node.exprs) if isinstance(node, c_ast.ExprList) else [node]


def assigned(node: Any) -> set[str]:
    """Return the names that a function or statement assigns to."""
    target = None
    if isinstance(node, c_ast.Assignment):
        target = node.lvalue
    elif isinstance(node, c_ast.UnaryOp) and node.op in ("++", "p++", "--", "p--"):
        target = node.expr
    while isinstance(target, c_ast.StructRef):
        target = target.name
    found = {target.name} if isinstance(target, c_ast.ID) else set()
    for _, child in node.children():
        found |= assigned(child)
    return found


def _is_left(node: Any) -> bool:
    """Whether a `break` or `continue` is in a statement."""
    leaves = isinstance(node, c_ast.Break | c_ast.Continue)
    return leaves or any(_is_left(child) for _, child in node.children())


def _identifiers(node: Any) -> list[c_ast.ID]:
    found = [node] if isinstance(node, c_ast.ID) else []
    for _, child in node.children():
        found += _identifiers(child)
    return found


def _shared(array: Array, buffer: Buffer) -> Array:
    return Array(array.element, array.length, buffer)
