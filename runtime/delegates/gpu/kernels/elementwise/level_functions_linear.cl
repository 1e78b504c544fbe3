// A sum, difference or product of levels of two operands, in floats whose results were compared with the operator's own for
// all pairs of bytes: they are rounded as on the host, so nothing may be joined to fma.
// Defines: ROW0(p) and ROW1(p), where pixel p of an operand begins, T0, T1, T (char or uchar: the operands, the result),
// IS_PRODUCT. Parameters: PIXELS, CHANNELS (padded), OUT_STRIDE, STEP0, STEP1 (1, or 0 where an operand has one channel for
// all), ZERO0, ZERO1, FACTOR0, FACTOR1 (of sums), MORE (added to the size), LOW, HIGH (bounds less the zero point),
// ZERO_POINT, and those of the rows. A unit is a range of pixels.
#pragma OPENCL FP_CONTRACT OFF
static void FUNC(const int t, const int nt, __global const T0 *restrict a, __global const T1 *restrict b,
    __global T *restrict out PARAMETERS)
{
    const int first = (int)((long)PIXELS * FIRST_UNIT(t, nt) / UNITS);
    const int last = (int)((long)PIXELS * FIRST_UNIT(t + 1, nt) / UNITS);
    for (int p = first; p < last; p++) {
        __global const T0 *x = a + ROW0(p);
        __global const T1 *z = b + ROW1(p);
        __global T *restrict to = out + (long)p * OUT_STRIDE;
        for (int c = 0; c < CHANNELS; c += 16) {
            const float16 u = (STEP0 ? CONVERT16(float16, LOAD16(T0, x + c)) : (float16)(float)x[0]) - ZERO0;
            const float16 v = (STEP1 ? CONVERT16(float16, LOAD16(T1, z + c)) : (float16)(float)z[0]) - ZERO1;
#if IS_PRODUCT
            const float16 y = u * v * FACTOR0;
#else
            const float16 y = u * FACTOR0 + v * FACTOR1;
#endif
            const float16 moved = y + as_float16(as_int16((float16)MORE) | (as_int16(y) & INT_MIN));
            // Adding 12582912 = 1.5 * 2^23 rounds to an integer, ties to the even one.
            const float16 level = clamp16(moved, LOW, HIGH) + 12582912.0f - 12582912.0f;
            STORE16(T, CONVERT16(VECTOR(T, 16), CONVERT16(int16, level) + ZERO_POINT), to + c);
        }
    }
}
