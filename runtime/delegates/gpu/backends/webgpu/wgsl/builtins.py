"""The built-in functions of OpenCL C that the portable subset has, as expressions of WGSL."""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from runtime.delegates.gpu.backends.webgpu.wgsl import types
from runtime.delegates.gpu.backends.webgpu.wgsl.places import Accesses, advanced
from runtime.delegates.gpu.backends.webgpu.wgsl.values import Value, binary, chosen, converted, whole

_SAME_NAME: Final = (
    "exp", "exp2", "log", "log2", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan",
    "floor", "ceil", "trunc", "fma", "ldexp", "mix",
)  # fmt: skip

_FLOAT_FUNCTIONS: Final = {name: name for name in _SAME_NAME} | {
    "fabs": "abs",
    "rint": "round",
    "rsqrt": "inverseSqrt",
    "fmin": "min",
    "fmax": "max",
    "native_exp": "exp",
    "native_log": "log",
    "native_sqrt": "sqrt",
    "native_rsqrt": "inverseSqrt",
}
"""Function of floats in OpenCL C → its name in WGSL, whose `round` goes to the even neighbour."""

_NUMBER_FUNCTIONS: Final = {"min": "min", "max": "max", "clamp": "clamp"}
"""Functions that take integers as well."""

IDS: Final = {
    "get_global_id": "global_id",
    "get_local_id": "local_id",
    "get_group_id": "group_id",
    "get_num_groups": "group_count",
    "get_local_size": "local_size",
    "get_global_size": "global_size",
}
"""Function of a dimension → the vector that the entry of a module sets (`module.py`)."""

Arguments: TypeAlias = Sequence[Value]


def call(name: str, arguments: Arguments, access: Accesses) -> Value | None:
    """Return the value of a built-in function; None if the subset has none of this name.

    Raises TypeError for arguments that it does not take.
    """
    if name in IDS:
        return _identity(name, arguments)
    if name.startswith(("convert_", "as_")):
        return _cast(name, arguments)
    if name in ("vload2", "vload4"):
        return _vector_load(int(name[-1]), arguments, access)
    if name in _FLOAT_FUNCTIONS:
        return _lanewise(_FLOAT_FUNCTIONS[name], arguments, types.FLOAT)
    if name in _NUMBER_FUNCTIONS:
        return _lanewise(_NUMBER_FUNCTIONS[name], arguments, None)
    made = _OTHERS.get(name)
    return None if made is None else made(arguments)


def store(name: str, arguments: Arguments, access: Accesses) -> str | None:
    """Return the statement of a built-in function that stores a vector; None for another function."""
    if name not in ("vstore2", "vstore4"):
        return None
    width = int(name[-1])
    value, count, pointer = arguments
    target, index = _vector_place(width, count, pointer)
    stored = converted(value, types.Number(_lane(target).kind, width))
    return f"{access.storing(target, width)}({index.text}, {stored.text});"


def _identity(name: str, arguments: Arguments) -> Value:
    (dimension,) = arguments
    if dimension.literal not in (0, 1, 2):
        raise TypeError(f"{name} of a computed dimension")
    return Value(f"{IDS[name]}.{'xyz'[dimension.literal]}", types.Number(types.UINT))


def _cast(name: str, arguments: Arguments) -> Value:
    """`convert_T` and `as_T`. Raises TypeError for other types than those of the subset."""
    (value,) = arguments
    prefix, _, type_name = name.partition("_")
    to = types.TYPES.get(type_name)
    if not isinstance(to, types.Number) or to.width != value.number.width:
        raise TypeError(f"{name} of {value.number.wgsl}")
    if prefix == "convert":
        return converted(value, to)
    given = value.number
    if given.kind == types.BOOL:
        value = converted(value, types.Number(types.INT, given.width))
    if value.number == to:
        return value
    # What is constant would be evaluated at once, and WGSL has no constant that is infinite or NaN.
    text = f"bitcast<{to.wgsl}>({value.text})"
    if value.literal is not None and to.kind == types.FLOAT:
        text = f"float_of_bits({converted(value, types.Number(types.UINT)).text})"
    return Value(text, to, None, value.reads_memory)


def _lane(pointer: types.Pointer) -> types.Number:
    if not isinstance(pointer.element, types.Number):
        raise TypeError("a vector access through a pointer to something else than its lanes")
    return pointer.element


def _vector_place(width: int, count: Value, pointer: Value) -> tuple[types.Pointer, Value]:
    if not isinstance(pointer.type, types.Pointer):
        raise TypeError("a vector access to what is no buffer")
    ahead = binary("*", converted(count, types.Number(types.INT)), whole(width))
    place = pointer if ahead.literal == 0 else advanced(pointer, ahead)
    return pointer.type, place


def _vector_load(width: int, arguments: Arguments, access: Accesses) -> Value:
    count, pointer = arguments
    source, index = _vector_place(width, count, pointer)
    loaded = types.Number(_lane(source).kind, width)
    return Value(f"{access.loading(source, width)}({index.text})", loaded, reads_memory=True)


def _lanewise(name: str, arguments: Arguments, kind: str | None) -> Value:
    """Call a function of WGSL whose arguments all have one type."""
    result = arguments[0].number
    for argument in arguments[1:]:
        result = types.common(result, argument.number)
    result = types.Number(kind or (types.INT if result.kind == types.BOOL else result.kind), result.width)
    written = ", ".join(converted(argument, result).text for argument in arguments)
    return Value(f"{name}({written})", result, None, _reads(arguments))


def _reads(arguments: Arguments) -> bool:
    return any(argument.reads_memory for argument in arguments)


def _multiply_add(arguments: Arguments) -> Value:
    a, b, c = arguments
    if c.number.kind == types.FLOAT:
        # OpenCL leaves the rounding of `mad` open, so a fused operation will do.
        return _lanewise("fma", arguments, types.FLOAT)
    return binary("+", binary("*", a, b), c)


def _absolute(arguments: Arguments) -> Value:
    (value,) = arguments
    if value.number.kind == types.FLOAT:
        raise TypeError("abs of floats (fabs is meant)")
    magnitude = _lanewise("abs", arguments, types.INT if value.number.kind == types.BOOL else None)
    return converted(magnitude, types.Number(types.UINT, magnitude.number.width))


def _select(arguments: Arguments) -> Value:
    """OpenCL's `select(a, b, c)` is b where c holds."""
    a, b, condition = arguments
    return chosen(condition, b, a)


def _any_or_all(name: str) -> Callable[[Arguments], Value]:
    def made(arguments: Arguments) -> Value:
        (value,) = arguments
        given = value.number
        # For integer lanes, OpenCL's `any` and `all` test the most significant bit.
        lanes = value.text if given.kind == types.BOOL else f"({value.text} < {given.wgsl}(0))"
        return Value(f"{name}({lanes})", types.Number(types.BOOL), None, value.reads_memory)

    return made


def _dot(arguments: Arguments) -> Value:
    a, b = arguments
    return Value(f"dot({a.text}, {b.text})", a.number.lane, None, _reads(arguments))


def _is_nan(arguments: Arguments) -> Value:
    """By its bits: compilers of WGSL may assume that there is no NaN."""
    (value,) = arguments
    width = value.number.width
    bits = types.Number(types.UINT, width).wgsl
    magnitude = f"(bitcast<{bits}>({value.text}) & {bits}(0x7fffffffu))"
    return Value(
        f"({magnitude} > {bits}(0x7f800000u))", types.Number(types.BOOL, width), None, value.reads_memory
    )


def _is_infinite(arguments: Arguments) -> Value:
    (value,) = arguments
    width = value.number.width
    bits = types.Number(types.UINT, width).wgsl
    magnitude = f"(bitcast<{bits}>({value.text}) & {bits}(0x7fffffffu))"
    return Value(
        f"({magnitude} == {bits}(0x7f800000u))", types.Number(types.BOOL, width), None, value.reads_memory
    )


def _unpacked_halves(arguments: Arguments) -> Value:
    """`unpack_halves`, which OpenCL C lacks: the two numbers of fp16 in a word."""
    word = converted(arguments[0], types.Number(types.UINT))
    return Value(f"unpack2x16float({word.text})", types.Number(types.FLOAT, 2), None, word.reads_memory)


def _leading_zeros(arguments: Arguments) -> Value:
    (value,) = arguments
    return Value(f"countLeadingZeros({value.text})", value.type, None, value.reads_memory)


_OTHERS: Final[dict[str, Callable[[Arguments], Value]]] = {
    "mad": _multiply_add,
    "mad24": _multiply_add,
    "mul24": lambda arguments: binary("*", *arguments),
    "abs": _absolute,
    "select": _select,
    "any": _any_or_all("any"),
    "all": _any_or_all("all"),
    "dot": _dot,
    "isnan": _is_nan,
    "isinf": _is_infinite,
    "clz": _leading_zeros,
    "unpack_halves": _unpacked_halves,
}

CONSTANTS: Final = {
    "INFINITY": Value("float_of_bits(0x7f800000u)", types.Number(types.FLOAT)),
    "NAN": Value("float_of_bits(0x7fc00000u)", types.Number(types.FLOAT)),
    "FLT_MAX": Value("float_of_bits(0x7f7fffffu)", types.Number(types.FLOAT)),
    "FLT_MIN": Value("float_of_bits(0x00800000u)", types.Number(types.FLOAT)),
    "FLT_EPSILON": Value("float_of_bits(0x34000000u)", types.Number(types.FLOAT)),
    "INT_MAX": Value("2147483647", types.Number(types.INT), 2147483647),
    "INT_MIN": Value("(-2147483647 - 1)", types.Number(types.INT), -2147483648),
}
"""Names of OpenCL C that stand for numbers; `float_of_bits` is defined by every module."""
