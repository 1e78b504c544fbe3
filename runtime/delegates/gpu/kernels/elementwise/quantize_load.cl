// Stored integers of type T to the real numbers that they stand for, SCALE * (q - ZERO_POINT).
// Defines: T. Parameters: PIXELS, CHANNELS, IN_STRIDE, IN_CHANNEL_STRIDE, OUT_STRIDE, SCALE, ZERO_POINT. A unit is a range
// of pixels. The lanes behind the last channel become zero.
static void FUNC(const int t, const int nt, __global const T *restrict in, __global float *restrict out PARAMETERS)
{
    const int first = (int)((long)PIXELS * FIRST_UNIT(t, nt) / UNITS);
    const int last = (int)((long)PIXELS * FIRST_UNIT(t + 1, nt) / UNITS);
    for (int p = first; p < last; p++) {
        __global const T *from = in + (long)p * IN_STRIDE;
        for (int c = 0; c < CHANNELS; c += 16) {
            float x[16];
            for (int lane = 0; lane < 16; lane++)
                x[lane] = c + lane < CHANNELS ? (float)from[(c + lane) * IN_CHANNEL_STRIDE] - ZERO_POINT : 0.0f;
            store16(EPILOGUE(vload16(0, x) * SCALE, p, c), out + (long)p * OUT_STRIDE + c);
        }
    }
}
