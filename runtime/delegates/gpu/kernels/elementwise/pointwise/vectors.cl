// Element-wise operators on operands of any type, each of a shape that is broadcast to the output's.
// Defines: T, the type of the output's elements, INPUTS, the pointers of the operands, and VALUE(p, c), the generated
// expression of the 16 results from channel c of pixel p on; IS_CHECKED, whether the last pointer, `failed`, is that of a
// check, which FORBIDDEN(p, c) breaks in a lane of an existing channel.
// Parameters: PIXELS, CHANNELS (padded), OUT_STRIDE, those of the expressions, and VALID, the channels that exist, where
// lanes are masked or checked. A unit is a range of pixels.
#ifndef POINTWISE_FUNCTIONS
#define POINTWISE_FUNCTIONS
#if defined(__clang__) && !defined(UNALIGNED_SHORT)
#define UNALIGNED_SHORT
typedef short unaligned_short __attribute__((ext_vector_type(16), aligned(2)));
#endif
// Without a sign, as C leaves undefined what signed numbers do beyond their bounds, where LiteRT's wrap around.
#define WRAPPING(type, a, operation, b) as_##type##16(as_u##type##16(a) operation as_u##type##16(b))
// A comparison of vectors gives -1 in lanes where it holds.
#define FLAGS(comparison) convert_uchar16(-(comparison))

// Towards zero. LiteRT gives the bounds for what lies beyond them, and the upper one for NaN.
static inline int16 truncated_int(float16 x)
{
    const int16 fits = x >= (float16)-0x1p31f && x < (float16)0x1p31f;
    const int16 bound = x < (float16)0.0f ? (int16)INT_MIN : (int16)INT_MAX;
    return fits ? convert_int16(fits ? x : (float16)0.0f) : bound;
}
static inline long16 truncated_long(float16 x)
{
    const int16 fits = x >= (float16)-0x1p63f && x < (float16)0x1p63f;
    const long16 bound = convert_long16(x < (float16)0.0f) != (long16)0 ? (long16)LONG_MIN : (long16)LONG_MAX;
    return convert_long16(fits) != (long16)0 ? convert_long16(fits ? x : (float16)0.0f) : bound;
}

// A processor stops at a quotient by zero, which padded lanes have, and at the least number by -1.
#define POINTWISE_DIVISION(type) \
    static inline type##16 quotient_##type(type##16 x, type##16 z) \
    { \
        const type##16 divisor = z == (type##16)0 || z == (type##16)-1 ? (type##16)1 : z; \
        return z == (type##16)-1 ? WRAPPING(type, (type##16)0, -, x) : x / divisor; \
    } \
    static inline type##16 floor_quotient_##type(type##16 x, type##16 z) \
    { \
        const type##16 quotient = quotient_##type(x, z), rest = WRAPPING(type, x, -, WRAPPING(type, quotient, *, z)); \
        return rest != (type##16)0 && (rest < (type##16)0) != (z < (type##16)0) ? quotient - (type##16)1 : quotient; \
    } \
    static inline type##16 rest_##type(type##16 x, type##16 z) \
    { \
        return WRAPPING(type, x, -, WRAPPING(type, quotient_##type(x, z), *, z)); \
    } \
    static inline type##16 floor_rest_##type(type##16 x, type##16 z) \
    { \
        const type##16 rest = rest_##type(x, z); \
        return rest != (type##16)0 && (rest < (type##16)0) != (z < (type##16)0) ? rest + z : rest; \
    }
POINTWISE_DIVISION(int)
POINTWISE_DIVISION(long)

// From int16 levels to others, as int32; adding the zero point saturates.
static inline int16 requantised(short16 x, int multiplier, int left, int right, int zero_in, int zero_out)
{
    const int16 scaled = multiplied16(convert_int16(x) - zero_in, (int16)multiplier, (int16)left, (int16)right);
    return add_sat(scaled, (int16)zero_out);
}

// max16 and min16 give the second argument where either is NaN.
static inline float16 bounded16(float16 low, float16 x, float16 high)
{
    const float16 raised = low != low ? low : max16(low, x);
    return high != high ? high : min16(high, raised);
}

static inline int16 squared_difference_int(int16 x, int16 z)
{
    const int16 difference = WRAPPING(int, x, -, z);
    return WRAPPING(int, difference, *, difference);
}

// By squares, wrapping around: what LiteRT does where there is one exponent for all.
static inline int16 power_alone_int(int16 x, int16 exponent)
{
    int16 y = (int16)1, square = x;
    for (int bit = 0; bit < 31; bit++) {
        y = (exponent >> bit & 1) != (int16)0 ? WRAPPING(int, y, *, square) : y;
        square = WRAPPING(int, square, *, square);
    }
    return y;
}
// LiteRT goes through double precision and casts: what does not fit becomes the least number. A product of two numbers
// of at most 2^31 fits in 64 bits, and one that has reached 2^31 stays there.
static inline int16 power_int(int16 x, int16 exponent)
{
    const long16 most = (long16)0x80000000L;
    long16 y = (long16)1, square = convert_long16(x);
    for (int bit = 0; bit < 31; bit++) {
        y = convert_long16(exponent >> bit & 1) != (long16)0 ? clamp(y * square, -most, most) : y;
        square = min(square * square, most);
    }
    return convert_int16(y < most && y > -most ? y : (long16)INT_MIN);
}
#endif
static void FUNC(const int t, const int nt, INPUTS, __global T *restrict out PARAMETERS)
{
    const int first = (int)((long)PIXELS * FIRST_UNIT(t, nt) / UNITS);
    const int last = (int)((long)PIXELS * FIRST_UNIT(t + 1, nt) / UNITS);
    for (int p = first; p < last; p++)
        for (int c = 0; c < CHANNELS; c += 16) {
#if IS_CHECKED
            const int16 lane = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) + c;
            if (any(convert_int16(FORBIDDEN(p, c)) & (lane < (int16)VALID)))
                *failed = 1;
#endif
            STORE16(T, EPILOGUE(VALUE(p, c), p, c), out + p * OUT_STRIDE + c);
        }
}
