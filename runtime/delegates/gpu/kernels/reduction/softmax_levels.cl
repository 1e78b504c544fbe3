// Softmax of 8-bit levels along the channels in fixed point, as LiteRT's reference kernel: exponentials of the distance from
// the largest level by a table in Q0.31, their sum in Q12.19, its reciprocal by three steps of Newton's method.
// Defines: T. Parameters: CHANNELS, IN_STRIDE, OUT_STRIDE, PIXELS, LOWEST (the level of zero). A unit is a range of pixels.
#ifndef SOFTMAX_LEVELS
#define SOFTMAX_LEVELS
// The product of two numbers in Q0.31, rounded to the nearest with ties upwards.
static inline long high_product(long a, long b) { return min((a * b + (1L << 30)) >> 31, (long)INT_MAX); }
static inline long rounded_shift(long x, int exponent)
{
    return exponent > 0 ? (x + (1L << (exponent - 1)) - (x < 0)) >> exponent : x;
}
#endif
static void FUNC(const int t, const int nt, __global const T *restrict in, __global const int *restrict table,
    __global T *restrict out PARAMETERS)
{
    const int first = (int)((long)PIXELS * FIRST_UNIT(t, nt) / UNITS);
    const int last = (int)((long)PIXELS * FIRST_UNIT(t + 1, nt) / UNITS);
    for (int p = first; p < last; p++) {
        __global const T *from = in + (long)p * IN_STRIDE;
        __global T *restrict to = out + (long)p * OUT_STRIDE;
        int largest = from[0];
        for (int c = 1; c < CHANNELS; c++)
            largest = max(largest, (int)from[c]);
        long sum = 0;
        for (int c = 0; c < CHANNELS; c++)
            sum += rounded_shift(table[largest - from[c]], 12);
        // 48 / 17 - 32 / 17 * place: the line of least relative error over [1/2, 1], in Q2.29.
        const int headroom = clz((int)sum);
        const long place = ((sum << headroom) - (1L << 31) + (long)INT_MAX + 1) / 2;
        long inverse = 1515870810L - high_product(place, 1010580540L);
        for (int step = 0; step < 3; step++)
            inverse += high_product(inverse, (1L << 29) - high_product(place, inverse)) << 2;
        inverse = min(inverse << 1, (long)INT_MAX);
        const int exponent = 12 - headroom + 31 - 8;
        for (int c = 0; c < CHANNELS; c++) {
            const long level = rounded_shift(high_product(table[largest - from[c]], inverse), exponent) + LOWEST;
            to[c] = (T)clamp(level, (long)LOWEST, (long)(LOWEST + 255));
        }
    }
}
