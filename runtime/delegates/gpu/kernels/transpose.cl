// N-D gather with strides (transpose, slice): each output pixel has a source offset from five digits of its index.
// Quotients and extents are constants, so the compiler turns their divisions into multiplications. Neighbours of the
// output may lie anywhere in the input, so elements are copied one by one; TAIL zeros keep padded lanes finite.
// Defines: PIXELS, CHANNELS, OUT_STRIDE, TAIL, BASE, CHANNEL_STEP, and for axis 0..4 QUOTIENTa, EXTENTa, STEPa.
#define SOURCE_DIGIT(a, p) ((p) / QUOTIENT##a % EXTENT##a * STEP##a)
static void FUNC(const int t, const int nt, __global const float *restrict in, __global float *restrict out)
{
    const int first = (int)((long)PIXELS * FIRST_UNIT(t, nt) / UNITS);
    const int last = (int)((long)PIXELS * FIRST_UNIT(t + 1, nt) / UNITS);
    for (int p = first; p < last; p++) {
        const int from = BASE + SOURCE_DIGIT(0, p) + SOURCE_DIGIT(1, p) + SOURCE_DIGIT(2, p) + SOURCE_DIGIT(3, p)
            + SOURCE_DIGIT(4, p);
        for (int c = 0; c < CHANNELS; c++)
            out[p * OUT_STRIDE + c] = in[from + c * CHANNEL_STEP];
        for (int c = CHANNELS; c < CHANNELS + TAIL; c++)
            out[p * OUT_STRIDE + c] = 0.0f;
    }
}
#undef SOURCE_DIGIT
