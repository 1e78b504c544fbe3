"""A module of WGSL: a kernel, and the functions that it reaches, each for the buffers of its arguments."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pycparser import c_ast

from runtime.delegates.gpu.backends.webgpu.wgsl import types
from runtime.delegates.gpu.backends.webgpu.wgsl.parse import OutsideSubsetError, Parsed, parse
from runtime.delegates.gpu.backends.webgpu.wgsl.places import Accesses, Variable, recast
from runtime.delegates.gpu.backends.webgpu.wgsl.prelude import FUNCTIONS, ORDERED, PRELUDE
from runtime.delegates.gpu.backends.webgpu.wgsl.scope import Scope, Writer, named
from runtime.delegates.gpu.backends.webgpu.wgsl.statements import Statements, assigned
from runtime.delegates.gpu.backends.webgpu.wgsl.values import Value, converted
from runtime.errors import DelegateError

ENTRY: Final = "run"
"""The name of the entry of every module."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The numbers of bindings that show arena and constants, each `words` words of them but for the last."""

    arena: int = 1
    constants: int = 1
    words: int = 0


ONE: Final = Windows()
"""Buffers that fit into one binding each, whatever its size."""


@dataclass(frozen=True, slots=True)
class Module:
    """The text of a module. `writable` says which bindings are, in the order of the kernel's pointers."""

    text: str
    writable: tuple[bool, ...]


@cache
def translate(text: str, kernel: str, windows: Windows = ONE) -> Module:
    """Translate the kernel of this name into a module; a text that was translated before is not again.

    Its pointers become bindings of group 0: a parameter that is const is only read. Its numbers are 0. The
    size of a work-group is that of the constants `local_x`, `local_y` and `local_z` of the pipeline.

    Raises:
        DelegateError: what the text has outside of the portable subset, with file and line.
    """
    return _Translation(parse(text), windows).module(kernel)


class _Translation:
    """The functions and arrays that were needed so far; see `expressions.Functions`."""

    def __init__(self, parsed: Parsed, windows: Windows) -> None:
        self._parsed = parsed
        self._windows = windows
        self.access = Accesses()
        self._made: dict[tuple[str, tuple[types.Pointer | None, ...]], tuple[str, types.Type]] = {}
        self._texts: list[str] = []
        self._shared: dict[str, types.Array] = {}
        self._preludes: dict[str, str] = {}

    def module(self, kernel: str) -> Module:
        """Return the module whose entry is `kernel`."""
        node = self._parsed.functions.get(kernel)
        if node is None:
            raise DelegateError(f"gpu delegate: the text has no kernel {kernel}")
        arguments = self._bound(node)
        buffers = [value.type.buffer for value in arguments if isinstance(value.type, types.Pointer)]
        called = self.call(kernel, arguments, node.coord)
        assert called is not None
        shared = [f"var<workgroup> {name}: {array.wgsl};\n" for name, array in self._shared.items()]
        parts = (
            *self._declared(buffers),
            PRELUDE,
            *_comparisons(),
            *shared,
            *self._preludes.values(),
            *self.access.texts(),
            *self._texts,
            _entry(called.text),
        )
        return Module("".join(parts), tuple(one.is_writable for one in buffers for _ in range(one.bindings)))

    def _bound(self, node: c_ast.FuncDef) -> list[Value]:
        """Return the arguments of the kernel: its numbers are 0, its pointers the beginnings of buffers."""
        arguments: list[Value] = []
        # A kernel's pointers are arena, constants and table,
        # in this order; a table of one row fits any binding.
        counts = iter((self._windows.arena, self._windows.constants))
        for parameter in _parameters(node):
            if not isinstance(parameter.type, c_ast.PtrDecl):
                arguments.append(Value("0", types.Number("i32"), 0))
                continue
            pointed = parameter.type.type
            name, is_writable = f"{parameter.name}_words", "const" not in pointed.quals
            buffer = types.Buffer(name, is_writable, bindings=next(counts, 1))
            arguments.append(Value("0", types.Pointer(buffer, self.element(pointed)), 0))
        return arguments

    def _declared(self, buffers: Sequence[types.Buffer]) -> Iterator[str]:
        """Declare the bindings, in the order of the kernel's pointers, once all accesses are known."""
        first = 0
        for buffer in buffers:
            yield _declared(self.access.layout(buffer), first, self._windows.words)
            first += buffer.bindings

    def call(self, name: str, arguments: Sequence[Value], coordinate: object) -> Value | None:
        """Call a function of the text, translated for the buffers of its arguments."""
        if name in FUNCTIONS:
            return self._prelude_call(name, arguments, coordinate)
        node = self._parsed.functions.get(name)
        if node is None:
            return None
        given = [self._argument(p, a) for p, a in zip(_parameters(node), arguments, strict=False)]
        if len(given) != len(arguments) or len(given) != len(_parameters(node)):
            raise OutsideSubsetError(coordinate, f"a call of {name} with {len(arguments)} arguments")
        key = (name, tuple(a.type if isinstance(a.type, types.Pointer) else None for a in given))
        if key not in self._made:
            result = self._result(node)
            self._made[key] = (named(f"{name}_{len(self._made)}"), result)
            self._texts.append(self._function(node, self._made[key][0], key[1], result))
        written, result = self._made[key]
        # A function that is given a buffer may read from it.
        reads = any(value.reads_memory for value in given) or any(key[1])
        return Value(f"{written}({', '.join(value.text for value in given)})", result, None, reads)

    def _prelude_call(self, name: str, arguments: Sequence[Value], coordinate: object) -> Value:
        """Call a function that WGSL lacks, for the width of its first argument."""
        try:
            vector = types.Number(FUNCTIONS[name].kind, max(value.number.width for value in arguments))
            given = [converted(value, vector) for value in arguments]
        except TypeError as error:
            raise OutsideSubsetError(coordinate, str(error)) from error
        written = f"{name}_of_{vector.width}"
        self._preludes[written] = FUNCTIONS[name].text.format(
            name=written, T=vector.wgsl, U=types.Number(types.UINT, vector.width).wgsl
        )
        reads = any(value.reads_memory for value in given)
        return Value(f"{written}({', '.join(value.text for value in given)})", vector, None, reads)

    def _argument(self, parameter: c_ast.Decl, value: Value) -> Value:
        if isinstance(parameter.type, c_ast.PtrDecl):
            if not isinstance(value.type, types.Pointer):
                raise OutsideSubsetError(
                    parameter.coord, f"the pointer {parameter.name} to what is no buffer"
                )
            return self.retyped(value, parameter.type.type)
        number = self.element(parameter.type)
        if not isinstance(number, types.Number):
            raise OutsideSubsetError(parameter.coord, f"a parameter of the type of {parameter.name}")
        return converted(value, number)

    def retyped(self, pointer: Value, pointed: c_ast.Node) -> Value:
        """Convert a pointer to one to another type: from and to void, as C converts by itself."""
        return recast(pointer, self.element(pointed))

    def _result(self, node: c_ast.FuncDef) -> types.Type:
        result = node.decl.type.type
        element = types.Pointer if isinstance(result, c_ast.PtrDecl) else self.element(result)
        if not isinstance(element, types.Number | types.Void):
            raise OutsideSubsetError(node.coord, f"the type of the result of {node.decl.name}")
        return element

    def _function(
        self,
        node: c_ast.FuncDef,
        written: str,
        pointers: tuple[types.Pointer | None, ...],
        result: types.Type,
    ) -> str:
        scope, writer = Scope(), Writer()
        changed = assigned(node.body)
        heads = []
        for parameter, pointer in zip(_parameters(node), pointers, strict=True):
            number = pointer or self.element(parameter.type)
            assert isinstance(number, types.Number | types.Pointer)
            kind = number.wgsl if isinstance(number, types.Number) else "i32"
            name = named(parameter.name)
            # Parameters of WGSL cannot be assigned to.
            heads.append(f"{'given_' if parameter.name in changed else ''}{name}: {kind}")
            if parameter.name in changed:
                writer.line(f"var {name}: {kind} = given_{name};")
            scope.declare(parameter.name, Variable(name, number))
        Statements(self, scope, writer, result=result, share=self._share).body(node.body)
        returned = f" -> {result.wgsl}" if isinstance(result, types.Number) else ""
        body = "".join(f"{line}\n" for line in writer.lines)
        return f"fn {written}({', '.join(heads)}){returned} {{\n{body}}}\n"

    def _share(self, name: str, array: types.Array) -> types.Buffer:
        written = f"{name}_shared_{len(self._shared)}"
        self._shared[written] = array
        return types.Buffer(
            written, element=array.element if isinstance(array.element, types.Number) else None
        )

    def element(self, node: Any) -> types.Element:
        """Return the type that a type's node names, which is no pointer and no array."""
        if not isinstance(node, c_ast.TypeDecl) or not isinstance(node.type, c_ast.IdentifierType):
            raise OutsideSubsetError(node.coord, "a type that is neither a number nor a vector")
        name = " ".join(node.type.names)
        if name in self._parsed.aliases:
            return self.element(self._parsed.aliases[name].type)
        if name not in types.TYPES:
            raise OutsideSubsetError(node.coord, f"the type {name}")
        return types.TYPES[name]


def _declared(buffer: types.Buffer, first: int, words: int) -> str:
    """Declare the bindings of a buffer, from number `first` on, and the choice among several."""
    mode = "read_write" if buffer.is_writable else "read"
    names = [buffer.name if buffer.bindings == 1 else f"{buffer.name}_{k}" for k in range(buffer.bindings)]
    text = "".join(
        f"@group(0) @binding({place}) var<storage, {mode}> {name}: {buffer.wgsl};\n"
        for place, name in enumerate(names, first)
    )
    if len(names) == 1:
        return text
    loads = [f"return {name}[at - {k * words}u];" for k, name in enumerate(names)]
    text += _choosing(f"word_of_{buffer.name}(i: i32) -> u32", loads, words)
    if buffer.is_writable:
        stores = [f"{name}[at - {k * words}u] = v;" for k, name in enumerate(names)]
        text += _choosing(f"put_into_{buffer.name}(i: i32, v: u32)", stores, words)
    return text


def _choosing(head: str, statements: Sequence[str], words: int) -> str:
    """Write a function that runs the statement of the binding in which word i is."""
    # The last binding is the `default`, without which WGSL takes no switch.
    cases = "".join(f"        case {k}u: {{ {one} }}\n" for k, one in enumerate(statements[:-1]))
    return (
        f"fn {head} {{\n    let at = u32(i);\n    switch at / {words}u {{\n{cases}"
        f"        default: {{ {statements[-1]} }}\n    }}\n}}\n"
    )


def _comparisons() -> Iterator[str]:
    for width in (1, *types.WIDTHS):
        floats, bits, truths = (
            types.Number(kind, width).wgsl for kind in (types.FLOAT, types.UINT, types.BOOL)
        )
        yield ORDERED.format(width=width, T=floats, U=bits, B=truths)


def _parameters(node: c_ast.FuncDef) -> list[Any]:
    listed = node.decl.type.args
    return [] if listed is None else [p for p in listed.params if isinstance(p, c_ast.Decl)]


def _entry(call: str) -> str:
    return (
        f"@compute @workgroup_size(local_x, local_y, local_z)\n"
        f"fn {ENTRY}(\n"
        "    @builtin(global_invocation_id) own_global_id: vec3<u32>,\n"
        "    @builtin(local_invocation_id) own_local_id: vec3<u32>,\n"
        "    @builtin(workgroup_id) own_group_id: vec3<u32>,\n"
        "    @builtin(num_workgroups) all_groups: vec3<u32>,\n"
        ") {\n"
        "    local_id = own_local_id;\n"
        "    group_id = own_group_id;\n"
        "    group_count = all_groups;\n"
        "    global_id = own_global_id;\n"
        "    local_size = vec3<u32>(local_x, local_y, local_z);\n"
        "    global_size = local_size * all_groups;\n"
        f"    {call};\n"
        "}\n"
    )
