// In front of every kernel of work-groups: functions on vectors of four, in the portable subset themselves.
#define QUOTIENT(i, divisor) quotient(i, divisor##_MULTIPLIER, divisor##_SHIFT)
#define REMAINDER(i, divisor) ((i) - QUOTIENT(i, divisor) * divisor)

// Joins what `width` work-items have left in `array`, `apart` places from each other, by halves: the first of them, whose
// `lane` is 0, then has the result. All work-items of the group take part; `width` is a power of two.
#define JOIN_ITEMS(array, item, lane, width, apart, COMBINE) \
    BARRIER(); \
    for (int step = (width) / 2; step > 0; step /= 2) { \
        if ((lane) < step) { \
            array[item] = COMBINE(array[item], array[(item) + step * (apart)]); \
        } \
        BARRIER(); \
    }
#define ADDED(a, b) ((a) + (b))
// The same of `value` of the ROW_ITEMS work-items of a row, which get all the result; one alone has it.
#define JOIN_ROW(value, COMBINE) \
    if (ROW_ITEMS > 1) { \
        partial[item] = value; \
        JOIN_ITEMS(partial, item, lane, ROW_ITEMS, 1, COMBINE) \
        value = partial[item - lane]; \
        BARRIER(); \
    }

// Byte i of a buffer of bytes: not every language of GPUs has pointers to less than a word.
#define LOAD_BYTE(buffer, i) ((LOAD_WORD(buffer, (i) / 4) >> (uint)((i) % 4 * 8)) & 255u)

// The block behind it runs for every vector of four results, of which there are TOTAL: each group of 256 work-items takes
// 256 neighbours, and of them every GLOBAL_SIZE-th. `first` is the same for all of a group, as bounds of loops must be.
#define FOR_EACH_VECTOR \
    for (int first = GROUP_ID(0) * 256; first < TOTAL; first += GLOBAL_SIZE(0)) \
        if (first + LOCAL_ID(0) < TOTAL)
// Declares, in that block, the pixel p and the first channel c of the work-item's vector; a pixel has VECTORS of them.
#define PLACE_OF_VECTOR(p, c) \
    const int p = QUOTIENT(first + LOCAL_ID(0), VECTORS); \
    const int c = (first + LOCAL_ID(0) - p * VECTORS) * 4
// Declares the image, row and column of pixel p of images of OUT_PIXELS in rows of OUT_W.
#define PLACE_OF_PIXEL(p, image, oy, ox) \
    const int image = QUOTIENT(p, OUT_PIXELS); \
    const int oy = QUOTIENT(p - image * OUT_PIXELS, OUT_W); \
    const int ox = p - image * OUT_PIXELS - oy * OUT_W

// Operands of the epilogue, as in common.cl.
#define OPERAND(i, p, c) LOAD4(e##i, (p) * E##i##_STRIDE + (c))
#define SCALAR_OPERAND(i, p, c) SPLAT4(LOAD(e##i, 0))
#define CHANNEL_OPERAND(i, p, c) LOAD4(e##i, c)
#define PIXEL_OPERAND(i, p, c) SPLAT4(LOAD(e##i, (p) * E##i##_STRIDE))
#define BROADCAST_OPERAND(i, offset, c) LOAD4(e##i, (offset) + (c))
#define BROADCAST_PIXEL_OPERAND(i, offset, c) SPLAT4(LOAD(e##i, offset))

// Comparisons: where one is NaN, the result is b.
static inline float4 max4(float4 a, float4 b) { return a > b ? a : b; }
static inline float4 min4(float4 a, float4 b) { return a < b ? a : b; }
static inline float4 clamp4(float4 x, float low, float high) { return min4(SPLAT4(high), max4(SPLAT4(low), x)); }
static inline float4 logistic4(float4 x) { return 1.0f / (1.0f + exp(-x)); }
static inline float4 swish4(float4 x) { return x / (1.0f + exp(-x)); }
static inline float4 relu4(float4 x) { return max4(SPLAT4(0.0f), x); }
static inline float4 hard_swish4(float4 x) { return x * clamp4(x + 3.0f, 0.0f, 6.0f) * (1.0f / 6.0f); }
static inline float4 prelu4(float4 x, float4 alpha) { return x >= SPLAT4(0.0f) ? x : alpha * x; }
static inline float4 leaky_relu4(float4 x, float alpha) { return x > SPLAT4(0.0f) ? x : alpha * x; }
static inline float4 sign4(float4 x)
{
    const float4 zero_or_nan = x == SPLAT4(0.0f) ? SPLAT4(0.0f) : x;
    const float4 negative = x < SPLAT4(0.0f) ? SPLAT4(-1.0f) : zero_or_nan;
    return x > SPLAT4(0.0f) ? SPLAT4(1.0f) : negative;
}
static inline float4 square4(float4 x) { return x * x; }
// C's remainder, plus the divisor where their signs differ.
static inline float4 floor_mod4(float4 x, float4 divisor)
{
    const float4 rest = fmod(x, divisor);
    const float4 agreeing = divisor < SPLAT4(0.0f) ? -rest : rest;
    return agreeing < SPLAT4(0.0f) ? rest + divisor : rest;
}
// As pow_alone16 of common.cl: one whole exponent for all is multiplied out by squares.
static inline float4 pow_alone4(float4 x, float4 exponent)
{
    const float power = rint(exponent.x);
    float4 y = pow(x, exponent);
    if (power >= 1.0f && power < 1e9f && fabs(exponent.x - power) < 1e-5f) {
        const int whole = (int)power;
        int top = 0;
        for (int bit = 1; bit < 31; bit++) {
            if (((whole >> bit) & 1) != 0) {
                top = bit;
            }
        }
        y = x;
        for (int bit = top - 1; bit >= 0; bit--) {
            y = clamp4(y * y, -FLT_MAX, FLT_MAX);
            if (((whole >> bit) & 1) != 0) {
                y = clamp4(y * x, -FLT_MAX, FLT_MAX);
            }
        }
    }
    return y;
}
// expm1 of the negative part only: of large numbers it would overflow to Inf.
static inline float4 elu4(float4 x) { return x < SPLAT4(0.0f) ? expm1(min4(x, SPLAT4(0.0f))) : x; }
// Ties go to the even neighbour; a result of zero is +0 unless x is -0 itself.
static inline float4 round4(float4 x)
{
    const float4 y = rint(x);
    return x == y ? x : y + 0.0f;
}
// Near zero PoCL's sin and cos are wrong by up to 0.008.
static inline float4 sin4(float4 x) { return fabs(x) < SPLAT4(1e-4f) ? x : sin(x); }
static inline float4 cos4(float4 x) { return fabs(x) < SPLAT4(1e-4f) ? SPLAT4(1.0f) : cos(x); }
static inline float4 tanh4(float4 x) { return tanh(x); }
static inline float4 gelu4(float4 x) { return 0.5f * x * (1.0f + erf(x * 0.70710678f)); }
static inline float4 gelu_approximate4(float4 x)
{
    return x * logistic4(1.59576912f * (x + 0.044715f * x * x * x));
}
static inline float4 simulate4(float4 x, float inverse, float low, float high, float scale)
{
    return (clamp4(x * inverse, low, high) + 12582912.0f - 12582912.0f) * scale;
}
static inline float4 quantize4(float4 x, float scale, float low, float high, float beyond)
{
    const float4 quotient_of_x = x / scale;
    const float4 whole = trunc(quotient_of_x);
    const float4 rounded = whole + trunc((quotient_of_x - whole) * 2.0f);
    return (fabs(rounded) < SPLAT4(2147483648.0f) ? clamp4(rounded, low, high) : SPLAT4(beyond)) * scale;
}
// x, of channels `channel` to `channel` + 3, with `other` in the lanes behind the last of the channels.
static inline float4 replaced4(float4 x, int channel, int channels, float other)
{
    return VEC4(channel < channels ? x.x : other, channel + 1 < channels ? x.y : other,
        channel + 2 < channels ? x.z : other, channel + 3 < channels ? x.w : other);
}
static inline float4 mask4(float4 x, int channel, int channels) { return replaced4(x, channel, channels, 0.0f); }
// The lanes' sum and maximum; a NaN among the lanes does not become the maximum unless it is the last.
static inline float sum_of4(float4 x) { return (x.x + x.y) + (x.z + x.w); }
static inline float max_of4(float4 x) { return fmax(fmax(x.x, x.y), fmax(x.z, x.w)); }
// As in copies.cl: the source index of count i of an axis with a mirrored border, for generated offsets.
static inline int mirrored(int i, int before, int size, int skipped)
{
    const int j = i < before ? before - i - 1 + skipped : i - before;
    return j < size ? j : 2 * size - 1 - skipped - j;
}

// Weights of products keep in memory the type that the model's file gives them, the define WEIGHT, and are widened in
// registers to the bits of the dequantised numbers, as in common.cl. They are a matrix of CHANNELS columns: rows of floats
// (the bias; of integers also the scales; of U8 also the zero points), then rows of the type, in words of 32 bits, since
// not every language of GPUs has pointers to less.
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define HEAD_ROWS_F32 1
#define HEAD_ROWS_F16 1
#define HEAD_ROWS_BF16 1
#define HEAD_ROWS_I8 2
#define HEAD_ROWS_U8 3
#define HEAD_ROWS_I4 2
// Weights i .. i+3 behind the rows of floats, i being a multiple of 4; `scale` and `zero` are those of their columns.
#define WEIGHTS4(weights, i, scale, zero) \
    JOIN(scaled4, WEIGHT)(JOIN(levels4, WEIGHT)(weights, JOIN(HEAD_ROWS, WEIGHT) * CHANNELS, i), scale, zero)
// Scales and zero points of the columns from c on.
#define SCALE4(weights, c) JOIN(scale4, WEIGHT)(weights, c)
#define ZERO4(weights, c) JOIN(zero4, WEIGHT)(weights, c)
// Of fp16 and bfloat16 as they are stored, in pairs.
#define WEIGHTS_AS_STORED4(weights, i) LOAD_WORDS2(weights, JOIN(HEAD_ROWS, WEIGHT) * CHANNELS + (i) / 2)
#define levels4_F32(weights, first, i) LOAD4(weights, (first) + (i))
#define levels4_F16(weights, first, i) halves4(LOAD_WORDS2(weights, (first) + (i) / 2))
#define levels4_BF16(weights, first, i) upper_halves4(LOAD_WORDS2(weights, (first) + (i) / 2))
#define levels4_I8(weights, first, i) signed_bytes4(LOAD_WORD(weights, (first) + (i) / 4))
#define levels4_U8(weights, first, i) bytes4(LOAD_WORD(weights, (first) + (i) / 4))
#define levels4_I4(weights, first, i) half_bytes4(LOAD_WORD(weights, (first) + (i) / 8) >> ((i) / 4 % 2 * 16))
#define scale4_F32(weights, c) SPLAT4(1.0f)
#define scale4_F16(weights, c) SPLAT4(1.0f)
#define scale4_BF16(weights, c) SPLAT4(1.0f)
#define scale4_I8(weights, c) LOAD4(weights, CHANNELS + (c))
#define scale4_U8(weights, c) LOAD4(weights, CHANNELS + (c))
#define scale4_I4(weights, c) LOAD4(weights, CHANNELS + (c))
#define zero4_F32(weights, c) SPLAT4(0.0f)
#define zero4_F16(weights, c) SPLAT4(0.0f)
#define zero4_BF16(weights, c) SPLAT4(0.0f)
#define zero4_I8(weights, c) SPLAT4(0.0f)
#define zero4_U8(weights, c) LOAD4(weights, 2 * CHANNELS + (c))
#define zero4_I4(weights, c) SPLAT4(0.0f)
#define scaled4_F32(levels, scale, zero) (levels)
#define scaled4_F16(levels, scale, zero) (levels)
#define scaled4_BF16(levels, scale, zero) (levels)
#define scaled4_I8(levels, scale, zero) ((levels) * (scale))
#define scaled4_U8(levels, scale, zero) (((levels) - (zero)) * (scale))
#define scaled4_I4(levels, scale, zero) ((levels) * (scale))
// fp16 by its bits: not every device converts it, or keeps its denormals, which are normal in float32.
static inline float half_of(uint bits)
{
    const uint magnitude = bits & 0x7fffu;
    const uint tiny = as_uint((float)magnitude * 5.9604645e-8f);
    const uint normal = (magnitude << 13) + 0x38000000u;
    const uint unlimited = (magnitude << 13) | 0x7f800000u;
    const uint finite = magnitude < 0x400u ? tiny : normal;
    return as_float((magnitude < 0x7c00u ? finite : unlimited) | ((bits & 0x8000u) << 16));
}
static inline float4 halves4(uint2 words)
{
    return VEC4(half_of(words.x & 0xffffu), half_of(words.x >> 16), half_of(words.y & 0xffffu), half_of(words.y >> 16));
}
static inline float4 upper_halves4(uint2 words)
{
    return VEC4(as_float(words.x << 16), as_float(words.x & 0xffff0000u), as_float(words.y << 16),
        as_float(words.y & 0xffff0000u));
}
static inline float4 signed_bytes4(uint word)
{
    return VEC4((float)((int)(word << 24) >> 24), (float)((int)(word << 16) >> 24), (float)((int)(word << 8) >> 24),
        (float)((int)word >> 24));
}
static inline float4 bytes4(uint word)
{
    return VEC4((float)(word & 255u), (float)((word >> 8) & 255u), (float)((word >> 16) & 255u), (float)(word >> 24));
}
// Levels plus 8 in four bits each, from the lowest on.
static inline float4 half_bytes4(uint word)
{
    return VEC4((float)(word & 15u), (float)((word >> 4) & 15u), (float)((word >> 8) & 15u), (float)((word >> 12) & 15u))
        - 8.0f;
}
