// Real numbers to the integers of type T that stand for them, within [LOW, HIGH], as LiteRT's QUANTIZE rounds: the quotient
// with ties away from zero. It wraps around what int32 cannot hold: the bound on the other side of a negative zero point.
// Defines: T. Parameters: LOW, HIGH, PIXELS, CHANNELS, IN_STRIDE, IN_CHANNEL_STRIDE, OUT_STRIDE, SCALE, ZERO_POINT. A unit
// is a range of pixels.
static void FUNC(const int t, const int nt, __global const float *restrict in, __global T *restrict out PARAMETERS)
{
    const int first = (int)((long)PIXELS * FIRST_UNIT(t, nt) / UNITS);
    const int last = (int)((long)PIXELS * FIRST_UNIT(t + 1, nt) / UNITS);
    const float beyond = ZERO_POINT < 0.0f ? HIGH : LOW;
    for (int p = first; p < last; p++) {
        __global const float *from = in + (long)p * IN_STRIDE;
        __global T *restrict to = out + (long)p * OUT_STRIDE;
        for (int c = 0; c < CHANNELS; c++) {
            const float quotient = from[c * IN_CHANNEL_STRIDE] / SCALE, whole = trunc(quotient);
            const float level = whole + trunc((quotient - whole) * 2.0f);
            to[c] = (T)(fabs(level) < 0x1p31f ? clamp(level + ZERO_POINT, LOW, HIGH) : beyond);
        }
    }
}
