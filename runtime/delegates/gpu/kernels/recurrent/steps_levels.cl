// Levels from sums of products of levels with weights: of the gates of an LSTM, or of its projection. A unit is 16 results of
// one row. Weights lie as [block of 16 results][input, then the previous output if JOINED][16], the stage as
// [block][bias, multiplier, left shift, right shift][16]; zero points are in the biases.
// Defines: IN, WEIGHT, OUT (types), JOINED (one sum over two inputs), ADDS (another product's levels are added),
// KEEPS (the results are the state too), TIES_UP (both roundings have ties upwards).
// Parameters: UNIT_BLOCKS as a divisor, INPUTS, OUTPUTS, ZERO, LOW, HIGH, and for in, previous, added and out the pixel of
// batch row 0, that of the next row after it, and the stride; STATE_STRIDE.
#ifndef STEPS_LEVELS
#define STEPS_LEVELS
#if defined(__clang__) && !defined(UNALIGNED_SHORT)
#define UNALIGNED_SHORT
typedef short unaligned_short __attribute__((ext_vector_type(16), aligned(2)));
#endif
static inline int16 multiplied_upwards16(int16 sum, int16 multiplier, int16 left, int16 right)
{
    const long16 product = convert_long16(sum << left) * convert_long16(multiplier);
    return (convert_int16((product + (1L << 30)) >> 31) + (((int16)1 << right) >> 1)) >> right;
}
#endif
static void FUNC(const int t, const int nt, __global const IN *restrict in
#if JOINED
    , __global const IN *restrict previous
#endif
    , __global const WEIGHT *restrict weights, __global const int *restrict stages
#if ADDS
    , __global const short *restrict added
#endif
    , __global OUT *out
#if KEEPS
    , __global OUT *state
#endif
    PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int b = QUOTIENT(u, UNIT_BLOCKS), block = u - b * UNIT_BLOCKS, c = block * 16;
        __global const IN *from = in + (IN_FIRST + b * IN_STEP) * IN_STRIDE;
        __global const int *stage = stages + block * 64;
#if JOINED
        __global const IN *before = previous + (PREVIOUS_FIRST + b * PREVIOUS_STEP) * PREVIOUS_STRIDE;
        __global const WEIGHT *w = weights + block * (INPUTS + OUTPUTS) * 16;
#else
        __global const WEIGHT *w = weights + block * INPUTS * 16;
#endif
        int16 sum = LOAD16(int, stage);
        for (int k = 0; k < INPUTS; k++, w += 16)
            sum += (int16)from[k] * convert_int16(LOAD16(WEIGHT, w));
#if JOINED
        for (int k = 0; k < OUTPUTS; k++, w += 16)
            sum += (int16)before[k] * convert_int16(LOAD16(WEIGHT, w));
#endif
#if TIES_UP
        const int16 scaled = multiplied_upwards16(sum, LOAD16(int, stage + 16), LOAD16(int, stage + 32), LOAD16(int, stage + 48));
#else
        const int16 scaled = requantised16(sum, stage + 16, 16);
#endif
        int16 level = clamp(scaled + ZERO, LOW, HIGH);
#if ADDS
        level = clamp(level + convert_int16(LOAD16(short, added + (ADDED_FIRST + b * ADDED_STEP) * ADDED_STRIDE + c)), LOW, HIGH);
#endif
        STORE16(OUT, CONVERT(OUT, 16)(level), out + (OUT_FIRST + b * OUT_STEP) * OUT_STRIDE + c);
#if KEEPS
        STORE16(OUT, CONVERT(OUT, 16)(level), state + b * STATE_STRIDE + c);
#endif
    }
}
