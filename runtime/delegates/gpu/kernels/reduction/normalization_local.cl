// x * (BIAS + ALPHA * sum of squares)^-BETA, the sum over channels [c - RADIUS, c + RADIUS) that exist: LiteRT leaves the
// last one out. A unit is one pixel, whose squares are kept with zeros around them, so that every channel has all terms.
// Defines: CAPACITY, at least the squares of a pixel and the zeros. Parameters: CHANNELS, RADIUS (at most CHANNELS), ALPHA,
// BETA, BIAS, IN_STRIDE, OUT_STRIDE.
#define PADDED ((CHANNELS + 15) / 16 * 16)
static void FUNC(const int t, const int nt, __global const float *restrict in, __global float *restrict out PARAMETERS)
{
    float squares[CAPACITY];
    for (int i = 0; i < RADIUS; i++)
        squares[i] = squares[RADIUS + PADDED + i] = 0.0f;
    for (int p = FIRST_UNIT(t, nt); p < FIRST_UNIT(t + 1, nt); p++) {
        __global const float *from = in + p * IN_STRIDE;
        for (int c = 0; c < PADDED; c += 16)
            vstore16(square16(mask16(load16(from + c), c, CHANNELS)), 0, squares + RADIUS + c);
        for (int c = 0; c < PADDED; c += 16) {
            float16 total = (float16)0.0f;
            for (int i = 0; i < 2 * RADIUS; i++)
                total += vload16(0, squares + c + i);
            const float16 scale = pow(BIAS + ALPHA * total, (float16)(-BETA));
            const float16 v = mask16(load16(from + c) * scale, c, CHANNELS);
            store16(EPILOGUE(v, p, c), out + p * OUT_STRIDE + c);
        }
    }
}
#undef PADDED
