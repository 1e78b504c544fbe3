// Shared by every kernel: unit ranges, vectors of 16, activations with an own exp.
// Included once, in front of all instances. Every function takes and returns float16.
#define FIRST_UNIT(t, nt) ((int)((long)UNITS * (t) / (nt)))
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define JOIN3_(a, b, c) a##b##c
#define JOIN3(a, b, c) JOIN3_(a, b, c)
// The vector type of `n` elements of a type that a define names, and the conversion to it.
#define VECTOR(type, n) JOIN3(type, n, )
#define CONVERT(type, n) JOIN3(convert_, type, n)
#define LOCAL_NAME(name) JOIN(FUNC, name)

// Bytes of the unit in which the frame counts the offsets of pointers: LINE of graph.py.
#define LINE 64
// What an entry reads from the row of a layer: pointers into its two buffers, and parameters.
#define ARENA(i) ((__global void *)(arena + (size_t)row[i] * LINE))
#define CONSTANT(i) ((__global const void *)(constants + (size_t)row[i] * LINE))
#define INTEGER(i) (row[i])
#define REAL(i) as_float(row[i])

// Quotient and remainder of i, which is not negative, by a parameter of parameters.py with its reciprocal.
#define QUOTIENT(i, divisor) ((int)((ulong)(uint)(i) * (uint)divisor##_MULTIPLIER >> divisor##_SHIFT))
#define REMAINDER(i, divisor) ((i) - QUOTIENT(i, divisor) * divisor)

// Loads and stores of 16 floats, or of 16 elements of a type, at any boundary of an element. PoCL compiles its vload16
// three times as slowly as an access through a vector type of low alignment, to the same instructions.
#ifdef __clang__
typedef float unaligned16 __attribute__((ext_vector_type(16), aligned(4)));
#define load16(pointer) (*(__global const unaligned16 *)(pointer))
#define store16(value, pointer) (*(__global unaligned16 *)(pointer) = (value))
typedef unaligned16 unaligned_float;
typedef int unaligned_int __attribute__((ext_vector_type(16), aligned(4)));
typedef uint unaligned_uint __attribute__((ext_vector_type(16), aligned(4)));
typedef long unaligned_long __attribute__((ext_vector_type(16), aligned(8)));
typedef ulong unaligned_ulong __attribute__((ext_vector_type(16), aligned(8)));
typedef ushort unaligned_ushort __attribute__((ext_vector_type(16), aligned(2)));
typedef uchar unaligned_uchar __attribute__((ext_vector_type(16), aligned(1)));
typedef char unaligned_char __attribute__((ext_vector_type(16), aligned(1)));
#define LOAD16(type, pointer) (*(__global const JOIN(unaligned, type) *)(pointer))
#define STORE16(type, value, pointer) (*(__global JOIN(unaligned, type) *)(pointer) = (value))
#else
#define load16(pointer) vload16(0, pointer)
#define store16(value, pointer) vstore16(value, 0, pointer)
#define LOAD16(type, pointer) vload16(0, pointer)
#define STORE16(type, value, pointer) vstore16(value, 0, pointer)
#endif

// Weights of products keep in memory the type that the model's file gives them, and are widened in registers. They lie in
// panels of TILE_N columns: a head of rows of floats (the bias; of integers also the scales, of U8 also the zero points),
// then rows of the type that the define WEIGHT names. A widened weight has the bits of the dequantised number: an integer
// is a float exactly, and its product with the scale is rounded once.
#define HEAD_ROWS_F32 1
#define HEAD_ROWS_F16 1
#define HEAD_ROWS_BF16 1
#define HEAD_ROWS_I8 2
#define HEAD_ROWS_U8 3
#define HEAD_ROWS_I4 2
#define WEIGHT_BITS_F32 32
#define WEIGHT_BITS_F16 16
#define WEIGHT_BITS_BF16 16
#define WEIGHT_BITS_I8 8
#define WEIGHT_BITS_U8 8
#define WEIGHT_BITS_I4 4
#define WEIGHT_BYTES(count) ((count) * JOIN(WEIGHT_BITS, WEIGHT) / 8)
// The head of a panel of so many rows, what follows it, and weights i .. i+15 of that, which belong to the panel's columns
// from `column` on.
#define PANEL_HEAD(weights, panel, rows) ((__global const float *)((weights) \
    + (size_t)(panel) * (4 * JOIN(HEAD_ROWS, WEIGHT) * TILE_N + WEIGHT_BYTES((rows) * TILE_N))))
#define PANEL_ROWS(head) ((__global const uchar *)((head) + JOIN(HEAD_ROWS, WEIGHT) * TILE_N))
#define WEIGHTS16(rows, i, head, column) \
    JOIN(scaled16, WEIGHT)(JOIN(levels16, WEIGHT)(rows, i), (head) + TILE_N + (column), TILE_N)
// Conversions by name are slower to compile with PoCL, as vload16 is; its vload_half16 is two conversions and a join.
#ifdef __clang__
typedef ushort unaligned_ushort16 __attribute__((ext_vector_type(16), aligned(2)));
typedef char unaligned_char16 __attribute__((ext_vector_type(16), aligned(1)));
typedef uchar unaligned_uchar16 __attribute__((ext_vector_type(16), aligned(1)));
typedef uchar unaligned_uchar8 __attribute__((ext_vector_type(8), aligned(1)));
typedef char unaligned_char8 __attribute__((ext_vector_type(8), aligned(1)));
#define LOAD_AS(type, pointer) (*(__global const unaligned_##type *)(pointer))
#define CONVERT16(type, vector) __builtin_convertvector(vector, type)
#else
#define LOAD_AS(type, pointer) LOAD_AS_##type(pointer)
#define LOAD_AS_ushort16(pointer) vload16(0, (__global const ushort *)(pointer))
#define LOAD_AS_char16(pointer) vload16(0, (__global const char *)(pointer))
#define LOAD_AS_uchar16(pointer) vload16(0, pointer)
#define LOAD_AS_uchar8(pointer) vload8(0, pointer)
#define LOAD_AS_char8(pointer) vload8(0, pointer)
#define CONVERT16(type, vector) convert_##type(vector)
#endif
static inline float16 levels16_F32(__global const uchar *rows, int i)
{
    return load16((__global const float *)rows + i);
}
static inline float16 levels16_F16(__global const uchar *rows, int i)
{
#if defined(__clang__) && defined(__AVX512F__)
    const short16 bits = as_short16(LOAD_AS(ushort16, rows + 2 * i));
    return __builtin_ia32_vcvtph2ps512_mask(bits, (float16)0.0f, (ushort)0xffff, 4);
#else
    return vload_half16(0, (__global const half *)rows + i);
#endif
}
static inline float16 levels16_BF16(__global const uchar *rows, int i)
{
    return as_float16(CONVERT16(uint16, LOAD_AS(ushort16, rows + 2 * i)) << 16);
}
static inline float16 levels16_I8(__global const uchar *rows, int i)
{
    return CONVERT16(float16, LOAD_AS(char16, rows + i));
}
static inline float16 levels16_U8(__global const uchar *rows, int i)
{
    return CONVERT16(float16, LOAD_AS(uchar16, rows + i));
}
// Eight bytes: the levels plus 8 of the first half of the columns in the low bits, those of the second in the high bits.
static inline float16 levels16_I4(__global const uchar *rows, int i)
{
    const uchar8 pairs = LOAD_AS(uchar8, rows + i / 2);
    const uint16 wide = CONVERT16(uint16, (uchar16)(pairs, pairs)) >> (uint16)((uint8)0, (uint8)4);
    return CONVERT16(float16, wide & 15) - 8.0f;
}
#define LEVELS16(rows, i) JOIN(levels16, WEIGHT)(rows, i)
// The numbers for which they stand; behind `width` scales lie the zero points.
#define scaled16_F32(levels, scale, width) (levels)
#define scaled16_F16(levels, scale, width) (levels)
#define scaled16_BF16(levels, scale, width) (levels)
#define scaled16_I8(levels, scale, width) ((levels) * load16(scale))
#define scaled16_U8(levels, scale, width) (((levels) - load16((scale) + (width))) * load16(scale))
#define scaled16_I4(levels, scale, width) ((levels) * load16(scale))

// Copies and fills runs of elements of the types that move them, 16 at a time and the rest by halves: compilers make of a
// plain loop, whose count they do not know, one that copies what is left over one by one. A structure moves as a vector
// does, at any boundary of its elements.
#define RUNS_OF(T) \
    typedef struct { T word[16]; } T##_words16; \
    typedef struct { T word[8]; } T##_words8; \
    typedef struct { T word[4]; } T##_words4; \
    typedef struct { T word[2]; } T##_words2; \
    static inline void copy_run_##T(__global T *restrict to, __global const T *restrict from, const int count) \
    { \
        int i = 0; \
        for (; i + 16 <= count; i += 16) \
            *(__global T##_words16 *)(to + i) = *(__global const T##_words16 *)(from + i); \
        if (count & 8) { *(__global T##_words8 *)(to + i) = *(__global const T##_words8 *)(from + i); i += 8; } \
        if (count & 4) { *(__global T##_words4 *)(to + i) = *(__global const T##_words4 *)(from + i); i += 4; } \
        if (count & 2) { *(__global T##_words2 *)(to + i) = *(__global const T##_words2 *)(from + i); i += 2; } \
        if (count & 1) \
            to[i] = from[i]; \
    } \
    static inline void fill_run_##T(__global T *restrict to, const T value, const int count) \
    { \
        T##_words8 words; \
        for (int j = 0; j < 8; j++) \
            words.word[j] = value; \
        int i = 0; \
        for (; i + 8 <= count; i += 8) \
            *(__global T##_words8 *)(to + i) = words; \
        for (; i < count; i++) \
            to[i] = value; \
    }
RUNS_OF(uchar)
RUNS_OF(ushort)
RUNS_OF(float)
RUNS_OF(ulong)
#define COPY_RUN(T, to, from, count) JOIN(copy_run, T)(to, from, count)
#define FILL_RUN(T, to, value, count) JOIN(fill_run, T)(to, value, count)

// Asks for a cache line ahead of its use; nothing where the compiler has no such builtin.
#if defined(__clang__) && defined(__x86_64__)
#define PREFETCH(pointer) __builtin_prefetch((const void *)(size_t)(pointer))
#else
#define PREFETCH(pointer)
#endif

// Lets a kernel of a processor with registers of 16 floats use them: clang halves vectors for some of these, unless a
// function says that it needs them or takes them as arguments. Winograd's products took 1.6 times as long in halves.
#if defined(__clang__) && defined(__x86_64__)
#define WIDE_VECTORS __attribute__((min_vector_width(512)))
#else
#define WIDE_VECTORS
#endif

// Makes the compiler forget what it knows of an integer. It would keep the address of every load of an unrolled tile from
// one turn of a loop to the next, in memory, as there are more of them than registers; a sum is cheaper than that load.
#if defined(__clang__) && defined(__x86_64__)
#define OPAQUE(integer) __asm__ volatile("" : "+r"(integer))
#else
#define OPAQUE(integer)
#endif

// sum and the products of both shorts of each int of a by those of b. AVX2 has an instruction for it.
static inline int8 add_pairs8(int8 sum, int8 a, int8 b)
{
#if defined(__clang__) && defined(__AVX2__)
    const int8 products = __builtin_ia32_pmaddwd256(as_short16(a), as_short16(b));
    return sum + products;
#else
    return sum + (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}
static inline int16 add_pairs16(int16 sum, int16 a, int16 b)
{
    return (int16)(add_pairs8(sum.lo, a.lo, b.lo), add_pairs8(sum.hi, a.hi, b.hi));
}
// Bytes 0 and 2 of each int as two shorts, and bytes 1 and 3: of bytes without a sign, and of those with one.
#define EVEN_BYTES(x) ((x) & 0x00ff00ff)
#define ODD_BYTES(x) ((x) >> 8 & 0x00ff00ff)
static inline int16 even_levels16(int16 x)
{
#if defined(__clang__) && defined(__AVX2__)
    const short16 low = as_short16(x.lo) << (short16)8, high = as_short16(x.hi) << (short16)8;
    return (int16)(as_int8(low >> (short16)8), as_int8(high >> (short16)8));
#else
    return (x << 24 >> 24 & 0xffff) | x << 8 >> 24 << 16;
#endif
}
static inline int16 odd_levels16(int16 x)
{
#if defined(__clang__) && defined(__AVX2__)
    return (int16)(as_int8(as_short16(x.lo) >> (short16)8), as_int8(as_short16(x.hi) >> (short16)8));
#else
    return (x << 16 >> 24 & 0xffff) | x >> 24 << 16;
#endif
}
// sum and the products of the four bytes of each int, of which the levels alone have a sign.
#define ADD_BYTES16(sum, bytes, levels) \
    add_pairs16(add_pairs16(sum, (int16)(EVEN_BYTES(bytes)), even_levels16(levels)), (int16)(ODD_BYTES(bytes)), \
        odd_levels16(levels))

// Comparisons instead of fmax and fmin, and a * b + c instead of fma, for the same reason. Where one is NaN, the result
// is b, as of the processor's own instruction: the order of the arguments decides whether a NaN stays or is dropped.
static inline float16 max16(float16 a, float16 b) { return a > b ? a : b; }
static inline float16 min16(float16 a, float16 b) { return a < b ? a : b; }

// Operands of the epilogue: one of the output's shape, one number, one number per channel or per pixel, and the
// general broadcast, `offset` elements behind the operand's first for pixel p.
#define OPERAND(i, p, c) load16(e##i + (p) * E##i##_STRIDE + (c))
#define SCALAR_OPERAND(i, p, c) ((float16)(e##i[0]))
#define CHANNEL_OPERAND(i, p, c) load16(e##i + (c))
#define PIXEL_OPERAND(i, p, c) ((float16)(e##i[(p) * E##i##_STRIDE]))
#define BROADCAST_OPERAND(i, offset, c) load16(e##i + (offset) + (c))
#define BROADCAST_PIXEL_OPERAND(i, offset, c) ((float16)(e##i[offset]))

// exp: x = n ln 2 + r, polynomial in r, exponent added as an integer. Relative error about 1e-7 in [-87.3, 88.3]; beyond,
// where the exponent would leave float32, the result is 0 or Inf, and NaN stays NaN. Adding 12582912 = 1.5 * 2^23 rounds
// to an integer, which then stands in the low bits. ln 2 is subtracted in two parts, the first of so few bits that its
// product with n is exact. Two comparisons whose masks replace what lies outside cost as much as clamping x first.
static inline float16 exp16(float16 x)
{
    const float16 t = x * 1.44269504f + 12582912.0f;
    const float16 n = t - 12582912.0f;
    const float16 r = n * 2.12194440e-4f + (n * -0.693359375f + x);
    float16 y = r * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * (r * r) + r + 1.0f;
    y = as_float16(as_int16(y) + (as_int16(t) << 23));
    y = x < (float16)-87.33654f ? (float16)0.0f : y;
    return x <= (float16)88.37f ? y : x * INFINITY;
}

static inline float16 logistic16(float16 x) { return 1.0f / (1.0f + exp16(-x)); }
static inline float16 swish16(float16 x) { return x / (1.0f + exp16(-x)); }
static inline float16 relu16(float16 x) { return max16((float16)0.0f, x); }
static inline float16 clamp16(float16 x, float low, float high)
{
    return min16((float16)high, max16((float16)low, x));
}
static inline float16 hard_swish16(float16 x) { return x * clamp16(x + 3.0f, 0.0f, 6.0f) * (1.0f / 6.0f); }
// LiteRT's two conditions differ at zero only, whose product with a negative slope is -0.
static inline float16 prelu16(float16 x, float16 alpha) { return x >= (float16)0.0f ? x : alpha * x; }
static inline float16 leaky_relu16(float16 x, float alpha) { return x > (float16)0.0f ? x : alpha * x; }
static inline float16 sign16(float16 x)
{
    const float16 zero_or_nan = x == (float16)0.0f ? (float16)0.0f : x;
    return x > (float16)0.0f ? (float16)1.0f : (x < (float16)0.0f ? (float16)-1.0f : zero_or_nan);
}
static inline float16 square16(float16 x) { return x * x; }
// The quotient rounded down. Rounded to a float first, it may have reached the next integer; the sign of what is then
// left of x, which fma gives exactly, shows that.
static inline float16 floor_div16(float16 x, float16 divisor)
{
    const float16 quotient = floor(x / divisor), rest = fma(-quotient, divisor, x);
    const int16 is_less = (rest > (float16)0.0f) & (divisor < (float16)0.0f);
    const int16 is_greater = (rest < (float16)0.0f) & (divisor > (float16)0.0f);
    return select(quotient, quotient - 1.0f, is_less | is_greater);
}
// C's remainder, plus the divisor where their signs differ.
static inline float16 floor_mod16(float16 x, float16 divisor)
{
    const float16 rest = fmod(x, divisor);
    const int16 is_other = (rest != (float16)0.0f) & ((divisor < (float16)0.0f) != (rest < (float16)0.0f));
    return select(rest, rest + divisor, is_other);
}
// One exponent for all, which counts as an integer within 1e-5 of one: x is multiplied out by squares, each product kept
// within the finite numbers, as LiteRT does.
static inline float16 pow_alone16(float16 x, float16 exponent)
{
    const float power = rint(exponent.s0);
    if (!(power >= 1.0f && power < 1e9f && fabs(exponent.s0 - power) < 1e-5f))
        return pow(x, exponent);
    float16 y = x;
    for (int bit = 30 - clz((int)power); bit >= 0; bit--) {
        y = clamp16(y * y, -FLT_MAX, FLT_MAX);
        if ((int)power >> bit & 1)
            y = clamp16(y * x, -FLT_MAX, FLT_MAX);
    }
    return y;
}
// expm1 of the negative part only: of large numbers it would overflow to Inf in lanes that select drops.
static inline float16 elu16(float16 x)
{
    return select(x, expm1(min16(x, (float16)0.0f)), x < (float16)0.0f);
}
// Ties go to the even neighbour. As LiteRT's, a result of zero is +0 unless x is -0 itself.
static inline float16 round16(float16 x)
{
    const float16 y = rint(x);
    return x == y ? x : y + 0.0f;
}
// PoCL's sin and cos are wrong by up to 0.008 for numbers close to the least normal one.
static inline float16 sin16(float16 x) { return fabs(x) < (float16)1e-4f ? x : sin(x); }
static inline float16 cos16(float16 x) { return fabs(x) < (float16)1e-4f ? (float16)1.0f : cos(x); }
// The driver's tanh is exact near zero, where a quotient of exponentials would cancel.
static inline float16 tanh16(float16 x) { return tanh(x); }
// erf as a quotient of polynomials (Eigen's coefficients): wrong by 5e-7 at most, and 1 or -1 beyond 4, where the driver's
// own, which takes the lanes one by one, lasts twenty times as long. GELU of -Inf has to multiply it by zero.
static inline float16 erf16(float16 x)
{
    const float16 square = x * x;
    float16 odd = square * -2.72614225801306e-10f + 2.77068142495902e-8f;
    odd = odd * square + -2.10102402082508e-6f;
    odd = odd * square + -5.69250639462346e-5f;
    odd = odd * square + -7.34990630326855e-4f;
    odd = odd * square + -2.95459980854025e-3f;
    odd = odd * square + -1.60960333262415e-2f;
    float16 even = square * -1.45660718464996e-5f + -2.13374055278905e-4f;
    even = even * square + -1.68282697438203e-3f;
    even = even * square + -7.37332916720468e-3f;
    even = even * square + -1.42647390514189e-2f;
    const float16 y = x * odd / even, bound = x < (float16)0.0f ? (float16)-1.0f : (float16)1.0f;
    return fabs(x) >= (float16)4.0f ? bound : y;
}
static inline float16 gelu16(float16 x) { return 0.5f * x * (1.0f + erf16(x * 0.70710678f)); }
// (1 + tanh u) / 2 is the logistic function of 2 u, which does not cancel where u is negative.
static inline float16 gelu_approximate16(float16 x)
{
    return x * logistic16(1.59576912f * (x + 0.044715f * x * x * x));
}
// The real numbers of quantised tensors: multiples of `scale`, `low` and `high` of which are the least and the greatest.
// Adding 12582912 = 1.5 * 2^23 rounds to an integer, ties to the even one.
static inline float16 simulate16(float16 x, float inverse, float low, float high, float scale)
{
    return (clamp16(x * inverse, low, high) + 12582912.0f - 12582912.0f) * scale;
}
// As LiteRT's QUANTIZE rounds: the quotient, ties away from zero; `beyond` in place of one that int32 cannot hold.
static inline float16 quantize16(float16 x, float scale, float low, float high, float beyond)
{
    const float16 quotient = x / scale, whole = trunc(quotient);
    const float16 rounded = whole + trunc((quotient - whole) * 2.0f);
    return (fabs(rounded) < (float16)2147483648.0f ? clamp16(rounded, low, high) : (float16)beyond) * scale;
}
// sum * multiplier * 2^(left - right - 31), rounded twice as in gemmlowp: to an integer with ties upwards, then behind the
// shift to the right with ties away from zero.
static inline int16 multiplied16(int16 sum, int16 multiplier, int16 left, int16 right)
{
    const long16 product = convert_long16(sum << left) * convert_long16(multiplier);
    const int16 high = convert_int16((product + (1L << 30)) >> 31);
    const int16 shifts = right > (int16)0, nudge = shifts & ((int16)1 << ((right - 1) & 31));
    return (high + nudge + ((high < (int16)0) & shifts)) >> right;
}
// The same with what `stage` has for 16 channels: multipliers, and behind each `next` ints left and right shifts.
static inline int16 requantised16(int16 sum, __global const int *stage, int next)
{
    return multiplied16(sum, vload16(0, stage), vload16(0, stage + next), vload16(0, stage + 2 * next));
}
// Both roundings in one product and two shifts, for factors below one half: `sum` is 2^31 more than the sum, so that it
// has no sign, `doubled` is twice the multiplier. `even` and `odd` are what the products of even and odd lanes need more:
// half of the first rounding and, in the high halves, half of the second, the zero point, and what the 2^31 adds, less 1
// for ties of negative sums, which the sign takes back for others. Constants are aligned for vectors.
typedef struct { uint16 doubled; ulong8 even, odd; int16 right; } Factors;
static inline Factors factors16(__global const int *stage, int next)
{
    const Factors factors = {
        *(__global const uint16 *)stage, *(__global const ulong8 *)(stage + next),
        *(__global const ulong8 *)(stage + 2 * next), *(__global const int16 *)(stage + 3 * next),
    };
    return factors;
}
static inline int16 requantised_once16(uint16 sum, Factors f)
{
    const ulong8 a = as_ulong8(sum), m = as_ulong8(f.doubled);
    const uint16 p = as_uint16((a & 0xffffffffUL) * (m & 0xffffffffUL) + f.even);
    const uint16 q = as_uint16((a >> 32) * (m >> 32) + f.odd);
    const uint16 high =
        (uint16)(p.s1, q.s1, p.s3, q.s3, p.s5, q.s5, p.s7, q.s7, p.s9, q.s9, p.sb, q.sb, p.sd, q.sd, p.sf, q.sf);
    return (as_int16(high) - (as_int16(sum) >> 31)) >> f.right;
}
#ifdef __clang__
typedef int unaligned_int4 __attribute__((ext_vector_type(4), aligned(1)));
#define STORE_LEVELS(levels, to) (*(__global unaligned_int4 *)(to) = (levels))
#endif
// As XNNPACK rounds: the sum by a scale of float32, one rounding, ties to the even level. Adding 12582912 = 1.5 * 2^23 rounds.
static inline int16 requantised_in_floats16(int16 sum, __global const int *scale, int zero_point)
{
    // Joined with the addition behind it, the product would not be rounded.
    #pragma OPENCL FP_CONTRACT OFF
    const float16 x = CONVERT16(float16, sum) * load16((__global const float *)scale);
    return as_int16(clamp16(x, -1e6f, 1e6f) + 12582912.0f) - (0x4b400000 - zero_point);
}
#if defined(__clang__) && defined(__AVX2__)
static inline void store_levels2(int16 a, int16 b, int low, int high, int sign, __global char *to0, __global char *to1)
{
    typedef char levels32 __attribute__((ext_vector_type(32)));
    levels32 packed =
        __builtin_ia32_packsswb256(__builtin_ia32_packssdw256(a.lo, a.hi), __builtin_ia32_packssdw256(b.lo, b.hi));
    const levels32 least = (levels32)(char)low, most = (levels32)(char)high;
    packed = __builtin_elementwise_min(__builtin_elementwise_max(packed, least), most) ^ (levels32)(char)sign;
    const int8 x = __builtin_astype(packed, int8);
    STORE_LEVELS(x.s0415, to0);
    STORE_LEVELS(x.s2637, to1);
}
#endif
// Stores four vectors of 16 levels, clamped, one at each address; `sign` is -128 for those of uint8 less 128, which gives them
// back, else 0.
static inline void store_levels4(int16 a, int16 b, int16 c, int16 d, int low, int high, int sign, __global char *to0,
    __global char *to1, __global char *to2, __global char *to3)
{
#if defined(__clang__) && defined(__AVX512BW__)
    typedef char levels64 __attribute__((ext_vector_type(64)));
    levels64 packed = __builtin_ia32_packsswb512(__builtin_ia32_packssdw512(a, b), __builtin_ia32_packssdw512(c, d));
    const levels64 least = (levels64)(char)low, most = (levels64)(char)high;
    packed = __builtin_elementwise_min(__builtin_elementwise_max(packed, least), most) ^ (levels64)(char)sign;
    const int16 x = __builtin_astype(packed, int16);
    const int16 y = (int16)(x.s0, x.s4, x.s8, x.sc, x.s1, x.s5, x.s9, x.sd, x.s2, x.s6, x.sa, x.se, x.s3, x.s7, x.sb, x.sf);
    STORE_LEVELS(y.s0123, to0);
    STORE_LEVELS(y.s4567, to1);
    STORE_LEVELS(y.s89ab, to2);
    STORE_LEVELS(y.scdef, to3);
#elif defined(__clang__) && defined(__AVX2__)
    store_levels2(a, b, low, high, sign, to0, to1);
    store_levels2(c, d, low, high, sign, to2, to3);
#else
    STORE16(char, convert_char16(clamp(a, low, high) ^ sign), to0);
    STORE16(char, convert_char16(clamp(b, low, high) ^ sign), to1);
    STORE16(char, convert_char16(clamp(c, low, high) ^ sign), to2);
    STORE16(char, convert_char16(clamp(d, low, high) ^ sign), to3);
#endif
}
// Zero in the lanes behind the last channel: what a step made of their unspecified contents must not spread.
static inline float16 mask16(float16 x, int channel, int channels)
{
    const int16 lane = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) + channel;
    return select((float16)0.0f, x, lane < (int16)channels);
}
// The maximum and the sum of a vector's lanes, by halves: four steps instead of fifteen.
static inline float max_of16(float16 x)
{
    const float8 a = fmax(x.lo, x.hi);
    const float4 b = fmax(a.lo, a.hi);
    const float2 c = fmax(b.lo, b.hi);
    return fmax(c.x, c.y);
}
static inline float sum_of16(float16 x)
{
    const float8 a = x.lo + x.hi;
    const float4 b = a.lo + a.hi;
    const float2 c = b.lo + b.hi;
    return c.x + c.y;
}
