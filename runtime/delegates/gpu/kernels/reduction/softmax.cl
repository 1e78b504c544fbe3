// Softmax over the channels of each pixel, or its logarithm; a unit is one pixel.
// The highest value is subtracted first, so that no exponential overflows. The exponentials are kept in the output,
// where the last loop scales them. Padded lanes are left out: they may neither win the maximum nor count in the sum.
// Defines: LOGARITHM. Parameters: CHANNELS, IN_STRIDE, OUT_STRIDE, BETA (1 for the logarithm).
#define PADDED ((CHANNELS + 15) / 16 * 16)
static void FUNC(const int t, const int nt, __global const float *restrict in, __global float *restrict out PARAMETERS)
{
    for (int p = FIRST_UNIT(t, nt); p < FIRST_UNIT(t + 1, nt); p++) {
        __global const float *from = in + p * IN_STRIDE;
        __global float *to = out + p * OUT_STRIDE;
        float16 highest = (float16)(-INFINITY);
        for (int c = 0; c + 16 <= CHANNELS; c += 16)
            highest = max16(highest, load16(from + c));
        float top = max_of16(highest);
        for (int c = CHANNELS / 16 * 16; c < CHANNELS; c++)
            top = fmax(top, from[c]);
        float16 total = (float16)0.0f;
        for (int c = 0; c < PADDED; c += 16) {
            float16 e = exp16((load16(from + c) - top) * BETA);
            if (c + 16 > CHANNELS)
                e = mask16(e, c, CHANNELS);
            total += e;
#if !LOGARITHM
            store16(e, to + c);
#endif
        }
#if LOGARITHM
        const float log_sum = log(sum_of16(total));
#else
        const float scale = 1.0f / sum_of16(total);
#endif
        for (int c = 0; c < PADDED; c += 16) {
#if LOGARITHM
            const float16 v = mask16(load16(from + c) - top - log_sum, c, CHANNELS);
#else
            const float16 v = load16(to + c) * scale;
#endif
            store16(EPILOGUE(v, p, c), to + c);
        }
    }
}
#undef PADDED
