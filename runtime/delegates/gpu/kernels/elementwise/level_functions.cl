// An element-wise operator on bytes by a table of its results for all of them.
// Defines: ROW0(p), where pixel p of the operand begins. Parameters: PIXELS, CHANNELS (padded), OUT_STRIDE, STEP0, and those
// of ROW0. A unit is a range of pixels. Lanes behind the last channel hold any byte.
static void FUNC(const int t, const int nt, __global const uchar *restrict in, __global const uchar *restrict table,
    __global uchar *restrict out PARAMETERS)
{
    const int first = (int)((long)PIXELS * FIRST_UNIT(t, nt) / UNITS);
    const int last = (int)((long)PIXELS * FIRST_UNIT(t + 1, nt) / UNITS);
    for (int p = first; p < last; p++) {
        __global const uchar *from = in + ROW0(p);
        __global uchar *restrict to = out + (long)p * OUT_STRIDE;
        for (int c = 0; c < CHANNELS; c++)
            to[c] = table[from[c * STEP0]];
    }
}
