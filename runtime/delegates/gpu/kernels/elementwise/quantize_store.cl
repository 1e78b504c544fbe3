// Real numbers that are multiples of SCALE to the integers of type T that stand for them, within [LOW, HIGH].
// Defines: T. Parameters: LOW, HIGH, PIXELS, CHANNELS, IN_STRIDE, IN_CHANNEL_STRIDE, OUT_STRIDE, SCALE, ZERO_POINT. A unit
// is a range of pixels. The product with the inverse is off by far less than the half that would round to another integer.
// fmax gives the bound in place of a NaN, whose conversion has no defined result.
static void FUNC(const int t, const int nt, __global const float *restrict in, __global T *restrict out PARAMETERS)
{
    const int first = (int)((long)PIXELS * FIRST_UNIT(t, nt) / UNITS);
    const int last = (int)((long)PIXELS * FIRST_UNIT(t + 1, nt) / UNITS);
    const float inverse = 1.0f / SCALE;
    for (int p = first; p < last; p++) {
        __global const float *from = in + (long)p * IN_STRIDE;
        __global T *restrict to = out + (long)p * OUT_STRIDE;
        for (int c = 0; c < CHANNELS; c++) {
            const float level = rint(from[c * IN_CHANNEL_STRIDE] * inverse) + ZERO_POINT;
            to[c] = (T)fmin(fmax(level, LOW), HIGH);
        }
    }
}
