// An element-wise operator on pairs of bytes by a table of its results for all of them, the first operand's byte in front.
// Defines: ROW0(p) and ROW1(p), where pixel p of an operand begins. Parameters: PIXELS, CHANNELS (padded), OUT_STRIDE,
// STEP0, STEP1 (0 where an operand has one channel for all), and those of the rows. A unit is a range of pixels.
static void FUNC(const int t, const int nt, __global const uchar *restrict a, __global const uchar *restrict b,
    __global const uchar *restrict table, __global uchar *restrict out PARAMETERS)
{
    const int first = (int)((long)PIXELS * FIRST_UNIT(t, nt) / UNITS);
    const int last = (int)((long)PIXELS * FIRST_UNIT(t + 1, nt) / UNITS);
    for (int p = first; p < last; p++) {
        __global const uchar *x = a + ROW0(p), *z = b + ROW1(p);
        __global uchar *restrict to = out + (long)p * OUT_STRIDE;
        for (int c = 0; c < CHANNELS; c++)
            to[c] = table[x[c * STEP0] << 8 | z[c * STEP1]];
    }
}
