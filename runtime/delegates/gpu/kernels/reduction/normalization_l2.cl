// x / max(sqrt(sum of squares), 1e-6) over the channels of each pixel; a unit is one pixel.
// The bound is LiteRT's: a row of zeros stays zero. Padded lanes do not count in the sum, and are set to zero.
// Parameters: CHANNELS, IN_STRIDE, OUT_STRIDE.
static void FUNC(const int t, const int nt, __global const float *restrict in, __global float *restrict out PARAMETERS)
{
    for (int p = FIRST_UNIT(t, nt); p < FIRST_UNIT(t + 1, nt); p++) {
        __global const float *from = in + p * IN_STRIDE;
        float16 total = (float16)0.0f;
        for (int c = 0; c < CHANNELS; c += 16)
            total += square16(mask16(load16(from + c), c, CHANNELS));
        const float norm = sqrt(sum_of16(total));
        const float divisor = norm < 1e-6f ? 1e-6f : norm;
        for (int c = 0; c < CHANNELS; c += 16) {
            const float16 v = mask16(load16(from + c) / divisor, c, CHANNELS);
            store16(EPILOGUE(v, p, c), out + p * OUT_STRIDE + c);
        }
    }
}
