// The real parts, the imaginary parts or the magnitudes of complex numbers, which are two floats each. A unit is a range
// of pixels.
// Defines: PART(re, im). Parameters: PIXELS, CHANNELS (padded), IN_STRIDE (in complex numbers), OUT_STRIDE.
static void FUNC(const int t, const int nt, __global const float *restrict in, __global float *restrict out PARAMETERS)
{
    const int first = (int)((long)PIXELS * FIRST_UNIT(t, nt) / UNITS);
    const int last = (int)((long)PIXELS * FIRST_UNIT(t + 1, nt) / UNITS);
    for (int p = first; p < last; p++)
        for (int c = 0; c < CHANNELS; c += 16) {
            __global const float *from = in + 2 * (p * IN_STRIDE + c);
            const float16 low = load16(from), high = load16(from + 16);
            const float16 re = (float16)(low.even, high.even), im = (float16)(low.odd, high.odd);
            store16(EPILOGUE(PART(re, im), p, c), out + p * OUT_STRIDE + c);
        }
}
