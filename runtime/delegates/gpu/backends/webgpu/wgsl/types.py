"""The types of the portable subset: numbers and vectors of up to four, pointers into buffers, arrays."""

from dataclasses import dataclass, replace
from typing import Final, TypeAlias

FLOAT: Final = "f32"
INT: Final = "i32"
UINT: Final = "u32"
BOOL: Final = "bool"

_RANKS: Final = {BOOL: 0, INT: 1, UINT: 2, FLOAT: 3}
"""The order of C's usual arithmetic conversions: of two kinds the one of higher rank is the common one."""

WORD: Final = 4
"""Bytes of an element of the buffers, which WGSL declares as arrays of u32."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number or a vector of `width` numbers. A comparison gives `bool`, which counts as an int of C."""

    kind: str
    width: int = 1

    @property
    def wgsl(self) -> str:
        """The type's name in WGSL."""
        return self.kind if self.width == 1 else f"vec{self.width}<{self.kind}>"

    @property
    def bytes(self) -> int:
        """Its size in memory."""
        return WORD * self.width

    @property
    def lane(self) -> "Number":
        """The type of one lane."""
        return replace(self, width=1)


@dataclass(frozen=True, slots=True)
class Narrow:
    """An integer of 8 or 16 bits, which exists in memory only: a load widens it to an int."""

    bits: int
    is_signed: bool

    @property
    def bytes(self) -> int:
        """Its size in memory."""
        return self.bits // 8

    @property
    def loaded(self) -> Number:
        """The type of a loaded value: C promotes it to int."""
        return Number(INT)


@dataclass(frozen=True, slots=True)
class Void:
    """The target of a pointer to raw memory, and the result of a function without one."""

    @property
    def bytes(self) -> int:
        """Pointers to void count bytes."""
        return 1


Element: TypeAlias = "Number | Narrow | Void"
"""What a pointer can point to."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that has a name in WGSL: a binding of words, or a workgroup's array of `element`.

    `bindings` are several where it is larger than one may be; `word` and `stored` then choose among them.
    `is_wide`: the binding consists of vectors of four words.
    """

    name: str
    is_writable: bool = True
    element: Number | None = None
    bindings: int = 1
    is_wide: bool = False

    @property
    def wgsl(self) -> str:
        """The type of a binding in WGSL."""
        return f"array<{'vec4<u32>' if self.is_wide else 'u32'}>"

    def word(self, index: str) -> str:
        """Return the expression of its word, or of its element, at an i32."""
        if self.is_wide:
            # WGSL takes the number of bits of a shift as u32 alone, also of an i32.
            return f"{self.name}[({index}) >> 2u][({index}) & 3]"
        return f"{self.name}[{index}]" if self.bindings == 1 else f"word_of_{self.name}({index})"

    def stored(self, index: str, value: str) -> str:
        """Return the statement that stores a word, or an element, at an i32."""
        if self.bindings == 1:
            return f"{self.name}[{index}] = {value};"
        return f"put_into_{self.name}({index}, {value});"


@dataclass(frozen=True, slots=True)
class Pointer:
    """A place in a buffer, which is a part of the type; its value is an i32 that counts elements."""

    buffer: Buffer
    element: Element


@dataclass(frozen=True, slots=True)
class Array:
    """An array of a function or, where `buffer` is given, of its work-group."""

    element: "Number | Array"
    length: int
    buffer: Buffer | None = None

    @property
    def wgsl(self) -> str:
        """The type's name in WGSL."""
        return f"array<{self.element.wgsl}, {self.length}>"


Type: TypeAlias = "Number | Pointer | Array | Void"
"""The type of an expression."""

_SCALARS: Final[dict[str, Element]] = {
    "void": Void(),
    "float": Number(FLOAT),
    "int": Number(INT),
    "uint": Number(UINT),
    "unsigned": Number(UINT),
    "unsigned int": Number(UINT),
    "size_t": Number(UINT),
    "_Bool": Number(BOOL),
    "char": Narrow(8, is_signed=True),
    "uchar": Narrow(8, is_signed=False),
    "short": Narrow(16, is_signed=True),
    "ushort": Narrow(16, is_signed=False),
}

WIDTHS: Final = (2, 4)
"""Lanes that the portable subset's vectors may have. WGSL aligns three lanes as four, OpenCL C does too."""

TYPES: Final[dict[str, Element]] = _SCALARS | {
    f"{name}{width}": replace(number, width=width)
    for name, number in (("float", Number(FLOAT)), ("int", Number(INT)), ("uint", Number(UINT)))
    for width in WIDTHS
}
"""Name in OpenCL C → type. `size_t` has 32 bits: no buffer of WebGPU has more than 2^32 bytes."""

FOREIGN: Final = (
    "half", "long", "ulong", "double",
    *(f"{name}{width}" for name in ("char", "uchar", "short", "ushort", "half", "long", "ulong", "double")
      for width in (2, 3, 4, 8, 16)),
    *(f"{name}{width}" for name in ("float", "int", "uint") for width in (3, 8, 16)),
)  # fmt: skip
"""Types of OpenCL C outside the subset. The parser must know them as types to name them in a message."""


def common(first: Number, second: Number) -> Number:
    """Return the type in which an operator computes, by C's and OpenCL C's rules.

    A vector decides the kind for a number beside it, which is widened to its lanes.
    """
    if first.width != second.width:
        wide = first if first.width > second.width else second
        return Number(INT, wide.width) if wide.kind == BOOL else wide
    kind = max(first.kind, second.kind, key=lambda kind: _RANKS[kind])
    return Number(INT if kind == BOOL else kind, first.width)
