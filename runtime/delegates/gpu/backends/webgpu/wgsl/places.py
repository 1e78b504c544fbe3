"""Describes where values lie: variables, lanes of vectors, elements of buffers; and how they are accessed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from runtime.delegates.gpu.backends.webgpu.wgsl import types
from runtime.delegates.gpu.backends.webgpu.wgsl.values import Value

_LANES: Final = "xyzw"


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable or a parameter, or an element of an array of a function or a work-group.

    `literal` is the number of one that stands for a turn of a loop that is written out.
    """

    text: str
    type: types.Type
    in_memory: bool = False
    literal: int | None = None

    def load(self, access: Accesses) -> Value:  # noqa: ARG002 - as all places
        """Its value."""
        return Value(self.text, self.type, self.literal, self.in_memory)

    def store(self, value: Value, access: Accesses) -> str:  # noqa: ARG002 - as all places
        """Return the statement that stores a value of its type."""
        return f"{self.text} = {value.text};"


@dataclass(frozen=True, slots=True)
class InBuffer:
    """An element of a buffer, `index` elements of its type behind the buffer's start."""

    pointer: types.Pointer
    index: str

    @property
    def type(self) -> types.Number:
        """The type of a loaded value. Raises TypeError if nothing can be loaded."""
        element = self.pointer.element
        if isinstance(element, types.Void):
            raise TypeError("a pointer to void points to nothing that can be read or written")
        return element.loaded if isinstance(element, types.Narrow) else element

    def load(self, access: Accesses) -> Value:
        """Its value."""
        return Value(f"{access.loading(self.pointer)}({self.index})", self.type, reads_memory=True)

    def store(self, value: Value, access: Accesses) -> str:
        """Return the statement that stores a value of its type."""
        return f"{access.storing(self.pointer)}({self.index}, {value.text});"


@dataclass(frozen=True, slots=True)
class Lanes:
    """Some lanes of a vector that lies in a variable or in a buffer."""

    whole: Variable | InBuffer
    lanes: str

    @property
    def type(self) -> types.Number:
        """The type of these lanes together."""
        assert isinstance(self.whole.type, types.Number)
        return types.Number(self.whole.type.kind, len(self.lanes))

    def load(self, access: Accesses) -> Value:
        """Their values."""
        vector = self.whole.load(access)
        return Value(f"{vector.text}.{self.lanes}", self.type, reads_memory=vector.reads_memory)

    def store(self, value: Value, access: Accesses) -> str:  # noqa: ARG002 - as all places
        """Return the statement that stores into one lane. Raises TypeError for several, or in a buffer."""
        if len(self.lanes) != 1 or not isinstance(self.whole, Variable):
            raise TypeError("an assignment to several lanes, or to a lane in a buffer")
        return f"{self.whole.text}.{self.lanes} = {value.text};"


Place: TypeAlias = "Variable | InBuffer | Lanes"


def lanes_of(field: str, width: int) -> str:
    """Return the lanes that `.x`, `.xy`, `.s0`, `.lo` and the like name. Raises TypeError for other names."""
    half = {"lo": _LANES[: width // 2], "hi": _LANES[width // 2 : width], "even": "xz"[: width // 2]}
    half["odd"] = "yw"[: width // 2]
    if field in half:
        return half[field]
    digits = field[1:] if field[0] in "sS" else ""
    named = (
        "".join(_LANES[int(digit)] for digit in digits) if digits and set(digits) <= set("0123") else field
    )
    if not set(named) <= set(_LANES[:width]) or len(named) not in (1, 2, 4):
        raise TypeError(f"the lanes .{field} of a vector of {width}")
    return named


QUAD: Final = 4
"""Words of the vectors of which a buffer consists in WGSL where that suits all accesses to it."""


class Accesses:
    """The functions that load from buffers and store into them, made when they are first needed."""

    def __init__(self) -> None:
        self._functions: dict[str, tuple[types.Buffer, Callable[[types.Buffer], str]]] = {}
        self._in_quads: set[str] = set()
        self._in_words: set[str] = set()

    def layout(self, buffer: types.Buffer) -> types.Buffer:
        """Return a buffer as all accesses that were asked for suit it: of vectors, or of words."""
        is_wide = buffer.name in self._in_quads - self._in_words and buffer.bindings == 1
        return replace(buffer, is_wide=is_wide)

    def texts(self) -> list[str]:
        """Return the functions that were asked for."""
        return [write(self.layout(buffer)) for buffer, write in self._functions.values()]

    def loading(self, pointer: types.Pointer, width: int | None = None) -> str:
        """Return the name of the function that loads an element, or `width` elements side by side."""
        buffer, element = pointer.buffer, pointer.element
        if isinstance(element, types.Narrow):
            sign = "i" if element.is_signed else "u"
            name = f"load_{buffer.name}_{sign}{element.bits}"
            # Deferred: the buffer's layout depends on all accesses to it, which are not known yet.
            self._functions.setdefault(name, (buffer, lambda laid: _narrow_load(name, laid, element)))
            return name
        loaded = _widened(element, width)
        step = 1 if width else loaded.width
        name = f"load_{buffer.name}_{loaded.kind}_{loaded.width}{'_unaligned' if width else ''}"
        if step == QUAD and buffer.element is None:
            self._in_quads.add(buffer.name)
        self._functions.setdefault(name, (buffer, lambda laid: _load(name, laid, loaded, step)))
        return name

    def storing(self, pointer: types.Pointer, width: int | None = None) -> str:
        """Return the name of the function that stores an element, or `width` elements side by side.

        Raises TypeError where the buffer is read only, or an element is smaller than a word: two invocations
        that store into one word would lose one of them. A store of less than a vector of a buffer of vectors
        may write the others as well, so that such a buffer consists of words.
        """
        buffer, element = pointer.buffer, pointer.element
        if not buffer.is_writable:
            raise TypeError("a store into a buffer that is only read")
        if isinstance(element, types.Narrow):
            raise TypeError(f"a store of {element.bits} bits")
        stored = _widened(element, width)
        step = 1 if width else stored.width
        name = f"store_{buffer.name}_{stored.kind}_{stored.width}{'_unaligned' if width else ''}"
        if buffer.element is None:
            (self._in_quads if step == QUAD else self._in_words).add(buffer.name)
        self._functions.setdefault(name, (buffer, lambda laid: _store(name, laid, stored, step)))
        return name


def _widened(element: types.Number | types.Narrow | types.Void, width: int | None) -> types.Number:
    if not isinstance(element, types.Number) or (width and element.width != 1):
        raise TypeError("a load or store of a vector through a pointer to something else than its lanes")
    return types.Number(element.kind, width or element.width)


def _load(name: str, buffer: types.Buffer, loaded: types.Number, step: int) -> str:
    if buffer.element == loaded:
        return f"fn {name}(i: i32) -> {loaded.wgsl} {{\n    return {buffer.name}[i];\n}}\n"
    words = [buffer.word(_place(step, lane)) for lane in range(loaded.width)]
    held = buffer.element.kind if buffer.element else types.UINT
    joined = words[0] if loaded.width == 1 else f"{types.Number(held, loaded.width).wgsl}({', '.join(words)})"
    if buffer.is_wide and step == QUAD:
        joined = f"{buffer.name}[i]"
    value = joined if held == loaded.kind else f"bitcast<{loaded.wgsl}>({joined})"
    return f"fn {name}(i: i32) -> {loaded.wgsl} {{\n    return {value};\n}}\n"


def _store(name: str, buffer: types.Buffer, stored: types.Number, step: int) -> str:
    if buffer.element == stored:
        return f"fn {name}(i: i32, v: {stored.wgsl}) {{\n    {buffer.name}[i] = v;\n}}\n"
    held = buffer.element.kind if buffer.element else types.UINT
    if buffer.is_wide:
        # Only whole vectors get here: any other store would have made this a buffer of words.
        value = "v" if held == stored.kind else f"bitcast<{types.Number(held, QUAD).wgsl}>(v)"
        return f"fn {name}(i: i32, v: {stored.wgsl}) {{\n    {buffer.name}[i] = {value};\n}}\n"
    lines = []
    for lane in range(stored.width):
        value = "v" if stored.width == 1 else f"v.{_LANES[lane]}"
        value = value if held == stored.kind else f"bitcast<{held}>({value})"
        lines.append(f"    {buffer.stored(_place(step, lane), value)}\n")
    return f"fn {name}(i: i32, v: {stored.wgsl}) {{\n{''.join(lines)}}}\n"


def _place(step: int, lane: int) -> str:
    index = "i" if step == 1 else f"i * {step}"
    return f"{index} + {lane}" if lane else index


def _narrow_load(name: str, buffer: types.Buffer, element: types.Narrow) -> str:
    each = types.WORD * 8 // element.bits
    shift = {2: 1, 4: 2}[each]
    word = buffer.word(f"i >> {shift}u")
    bits = f"{element.bits}u"
    at = f"u32(i & {each - 1}) * {bits}"
    if element.is_signed:
        # On an i32, `extractBits` sign-extends.
        value = f"extractBits(bitcast<i32>({word}), {at}, {bits})"
    else:
        value = f"i32(extractBits({word}, {at}, {bits}))"
    return f"fn {name}(i: i32) -> i32 {{\n    return {value};\n}}\n"


def element_of(array: Variable, index: Value) -> Variable:
    """Return an element of an array."""
    assert isinstance(array.type, types.Array)
    return Variable(f"{array.text}[{index.text}]", array.type.element, in_memory=True)


def advanced(pointer: Value, count: Value) -> Value:
    """Return a pointer so many elements further."""
    if pointer.literal == 0:
        return Value(count.text, pointer.type, count.literal, count.reads_memory)
    reads = pointer.reads_memory or count.reads_memory
    return Value(f"({pointer.text} + {count.text})", pointer.type, None, reads)


def recast(pointer: Value, element: types.Number | types.Narrow | types.Void) -> Value:
    """Return the same place for elements of another type, which begins at a multiple of their size.

    Raises TypeError in memory of a work-group, whose arrays have one type.
    """
    assert isinstance(pointer.type, types.Pointer)
    given = pointer.type.element
    if given == element:
        return pointer
    if pointer.type.buffer.element is not None:
        raise TypeError("another type for memory of a work-group")
    if element.bytes > given.bytes:
        # Unsigned: a count of bytes may need the bit of the sign.
        text = f"i32(u32({pointer.text}) / {element.bytes // given.bytes}u)"
    elif element.bytes < given.bytes:
        text = f"({pointer.text} * {given.bytes // element.bytes})"
    else:
        text = pointer.text
    literal = 0 if pointer.literal == 0 else None
    return Value(text, types.Pointer(pointer.type.buffer, element), literal, pointer.reads_memory)
