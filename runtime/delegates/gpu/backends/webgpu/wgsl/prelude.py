"""The beginning of every module of WGSL, and functions of OpenCL C that WGSL lacks."""

from dataclasses import dataclass
from typing import Final

from runtime.delegates.gpu.backends.webgpu.wgsl.types import FLOAT, UINT

PRELUDE: Final = """\
override local_x: u32 = 1u;
override local_y: u32 = 1u;
override local_z: u32 = 1u;
var<private> global_id: vec3<u32>;
var<private> local_id: vec3<u32>;
var<private> group_id: vec3<u32>;
var<private> group_count: vec3<u32>;
var<private> local_size: vec3<u32>;
var<private> global_size: vec3<u32>;
// Constants of WGSL are neither infinite nor NaN: what is made of the bits of a variable may be.
fn float_of_bits(bits: u32) -> f32 {
    var held = bits;
    return bitcast<f32>(held);
}
"""

ORDERED: Final = """\
// A comparison of a with b, which is false where one is NaN. That is nothing new, but compilers make of
// `select(b, a, a > b)` alone a maximum, which drops a NaN.
fn ordered_{width}(holds: {B}, a: {T}, b: {T}) -> {B} {{
    let first = bitcast<{U}>(a) & {U}(0x7fffffffu);
    let second = bitcast<{U}>(b) & {U}(0x7fffffffu);
    return holds & (max(first, second) <= {U}(0x7f800000u));
}}
"""
"""The function of every comparison of floats or vectors of them, for each width."""

_BITS = "bitcast<{U}>(%s) & {U}(0x7fffffffu)"
_IS_NAN = f"(({_BITS}) > {{U}}(0x7f800000u))"
_INFINITY = "{T}(float_of_bits(0x7f800000u))"


@dataclass(frozen=True, slots=True)
class Supplied:
    """The text of a function, called `name`, on numbers of a kind or vectors of them, `T`."""

    kind: str
    text: str


FUNCTIONS: Final = {
    # C's remainder has the sign of the dividend, as WGSL's, which is NaN where the divisor is infinite.
    "fmod": Supplied(
        FLOAT, "fn {name}(x: {T}, y: {T}) -> {T} {{\n    return select(x % y, x, abs(x) < abs(y));\n}}\n"
    ),
    # Mesa's is wrong by 3e-8 near zero, and -1 of NaN.
    "tanh": Supplied(
        FLOAT,
        "fn {name}(x: {T}) -> {T} {{\n"
        f"    return select(tanh(x), x, {_IS_NAN % 'x'} | (abs(x) < {{T}}(1e-3)));\n"
        "}}\n",
    ),
    # WGSL leaves open what becomes of two zeros and of two infinities.
    "atan2": Supplied(
        FLOAT,
        "fn {name}(y: {T}, x: {T}) -> {T} {{\n"
        "    let high = max(abs(x), abs(y));\n"
        "    let low = min(abs(x), abs(y));\n"
        "    let ratio = select(low / high, select({T}(1.0), {T}(0.0), high == {T}(0.0)), low == high);\n"
        "    let eighth = atan(ratio);\n"
        "    let quarter = select(eighth, 1.57079637 - eighth, abs(y) > abs(x));\n"
        "    let is_behind = (bitcast<{U}>(x) >> {U}(31u)) != {U}(0u);\n"
        "    let angle = select(quarter, 3.14159274 - quarter, is_behind);\n"
        "    let signed = bitcast<{T}>(bitcast<{U}>(angle) | (bitcast<{U}>(y) & {U}(0x80000000u)));\n"
        f"    return select(signed, x + y, {_IS_NAN % 'x'} | {_IS_NAN % 'y'});\n"
        "}}\n",
    ),
    # The series where the difference of exp and 1 would cancel; its first term left out is x^8 / 40320.
    "expm1": Supplied(
        FLOAT,
        "fn {name}(x: {T}) -> {T} {{\n"
        "    var series = x * (1.0 / 5040.0) + {T}(1.0 / 720.0);\n"
        "    series = series * x + {T}(1.0 / 120.0);\n"
        "    series = series * x + {T}(1.0 / 24.0);\n"
        "    series = series * x + {T}(1.0 / 6.0);\n"
        "    series = series * x + {T}(0.5);\n"
        "    series = series * x * x + x;\n"
        "    return select(exp(x) - {T}(1.0), series, abs(x) < {T}(0.35));\n"
        "}}\n",
    ),
    # Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: within 1.5e-7.
    "erf": Supplied(
        FLOAT,
        "fn {name}(x: {T}) -> {T} {{\n"
        "    let t = {T}(1.0) / ({T}(1.0) + 0.3275911 * abs(x));\n"
        "    var sum = t * 1.061405429 - {T}(1.453152027);\n"
        "    sum = sum * t + {T}(1.421413741);\n"
        "    sum = sum * t - {T}(0.284496736);\n"
        "    sum = sum * t + {T}(0.254829592);\n"
        "    return sign(x) * ({T}(1.0) - sum * t * exp(-x * x));\n"
        "}}\n",
    ),
    # WGSL leaves open the powers of negative numbers, and what C defines at zero, one and infinity.
    "pow": Supplied(
        FLOAT,
        "fn {name}(x: {T}, y: {T}) -> {T} {{\n"
        f"    let of_zero = select({_INFINITY}, {{T}}(0.0), y > {{T}}(0.0));\n"
        "    var size = select(pow(abs(x), y), of_zero, x == {T}(0.0));\n"
        "    size = select(size, {T}(1.0), abs(x) == {T}(1.0));\n"
        "    let half = y * 0.5;\n"
        "    let is_whole = floor(y) == y;\n"
        "    let is_odd = is_whole & (floor(half) != half);\n"
        "    let is_negative = (bitcast<{U}>(x) >> {U}(31u)) != {U}(0u);\n"
        "    let power = select(size, -size, is_negative & is_odd);\n"
        f"    let is_real = (x >= {{T}}(0.0)) | is_whole | (abs(x) == {_INFINITY});\n"
        "    let real = select({T}(float_of_bits(0x7fc00000u)), power, is_real);\n"
        f"    let known = select(real, x + y, {_IS_NAN % 'x'} | {_IS_NAN % 'y'});\n"
        "    return select(known, {T}(1.0), (y == {T}(0.0)) | (x == {T}(1.0)));\n"
        "}}\n",
    ),
    # The upper half of a product of two words, by halves: WGSL has no integers of 64 bits.
    "mul_hi": Supplied(
        UINT,
        "fn {name}(a: {T}, b: {T}) -> {T} {{\n"
        "    let half = {T}(0xffffu);\n"
        "    let shift = {T}(16u);\n"
        "    let low = (a & half) * (b & half);\n"
        "    let first = (a >> shift) * (b & half) + (low >> shift);\n"
        "    let second = (a & half) * (b >> shift) + (first & half);\n"
        "    return (a >> shift) * (b >> shift) + (first >> shift) + (second >> shift);\n"
        "}}\n",
    ),
}
"""Function of OpenCL C that WGSL lacks → its text."""
