// (x - mean) / sqrt(variance + EPSILON) over the channels of each pixel; a unit is one pixel.
// Padded lanes do not count in the sums, and are set to zero. A row is read from memory once and twice more from the cache:
// of squares alone the variance would cancel.
// Parameters: CHANNELS, SCALE (1 / CHANNELS), EPSILON, IN_STRIDE, OUT_STRIDE.
static void FUNC(const int t, const int nt, __global const float *restrict in, __global float *restrict out PARAMETERS)
{
    const int whole = CHANNELS / 16 * 16;
    for (int p = FIRST_UNIT(t, nt); p < FIRST_UNIT(t + 1, nt); p++) {
        __global const float *from = in + p * IN_STRIDE;
        float16 total = (float16)0.0f, squares = (float16)0.0f;
        for (int c = 0; c < whole; c += 16)
            total += load16(from + c);
        if (whole < CHANNELS)
            total += mask16(load16(from + whole), whole, CHANNELS);
        const float mean = sum_of16(total) * SCALE;
        for (int c = 0; c < whole; c += 16)
            squares += square16(load16(from + c) - mean);
        if (whole < CHANNELS)
            squares += square16(mask16(load16(from + whole) - mean, whole, CHANNELS));
        const float factor = 1.0f / sqrt(sum_of16(squares) * SCALE + EPSILON);
        for (int c = 0; c < CHANNELS; c += 16) {
            float16 v = (load16(from + c) - mean) * factor;
            if (c == whole)
                v = mask16(v, c, CHANNELS);
            store16(EPILOGUE(v, p, c), out + p * OUT_STRIDE + c);
        }
    }
}
