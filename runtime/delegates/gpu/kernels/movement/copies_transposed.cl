// A transposition that moves the channels, in blocks of 16 by 16 that are turned in registers, so that both sides are read
// and written in vectors. Axis j of the output is the input's channels, axis k of the input the output's channels; z counts
// the others, at SOURCE(z) in the input and pixel TARGET(z) of the output. Lanes that are not read are zero, so that
// padding of the output, which is overwritten, stays finite.
// Defines: T, the type that moves an element, and the two expressions.
// Parameters: LINES (extent of j), COLUMNS (of k), COLUMN_STEP (of k in the input), LINE_STEP (of j, in pixels of the output),
// OUT_STRIDE, those of the expressions, and BLOCKS with its reciprocal, blocks of 16 lines. A unit is a range of such blocks
// of all z, in whole lines.
// The lanes of two vectors by turns. Four times, with pairs that lie eight apart, they transpose 16 vectors.
#define COPIES_TRANSPOSED_LOWER(a, b) \
    (VECTOR(T, 16))((a).s0, (b).s0, (a).s1, (b).s1, (a).s2, (b).s2, (a).s3, (b).s3, \
        (a).s4, (b).s4, (a).s5, (b).s5, (a).s6, (b).s6, (a).s7, (b).s7)
#define COPIES_TRANSPOSED_UPPER(a, b) \
    (VECTOR(T, 16))((a).s8, (b).s8, (a).s9, (b).s9, (a).sa, (b).sa, (a).sb, (b).sb, \
        (a).sc, (b).sc, (a).sd, (b).sd, (a).se, (b).se, (a).sf, (b).sf)
#define COPIES_TRANSPOSED_TURN(to, from) \
    _Pragma("unroll") for (int i = 0; i < 8; i++) { \
        to[2 * i] = COPIES_TRANSPOSED_LOWER(from[i], from[i + 8]); \
        to[2 * i + 1] = COPIES_TRANSPOSED_UPPER(from[i], from[i + 8]); \
    }
static void FUNC(const int t, const int nt, __global const T *restrict in, __global T *restrict out PARAMETERS)
{
    const int last = FIRST_UNIT(t + 1, nt);
    for (int unit = FIRST_UNIT(t, nt); unit < last; unit++) {
        const int z = QUOTIENT(unit, BLOCKS);
        const int j = 16 * (unit - z * BLOCKS);
        const int lines = min(16, LINES - j);
        __global const T *from = in + SOURCE(z) + j;
        __global T *to = out + (TARGET(z) + j * LINE_STEP) * OUT_STRIDE;
        for (int k = 0; k < COLUMNS; k += 16) {
            VECTOR(T, 16) a[16], b[16];
            #pragma unroll
            for (int i = 0; i < 16; i++)
                a[i] = k + i < COLUMNS ? LOAD16(T, from + (k + i) * COLUMN_STEP) : (VECTOR(T, 16))(0);
            COPIES_TRANSPOSED_TURN(b, a)
            COPIES_TRANSPOSED_TURN(a, b)
            COPIES_TRANSPOSED_TURN(b, a)
            COPIES_TRANSPOSED_TURN(a, b)
            #pragma unroll
            for (int i = 0; i < 16; i++)
                if (i < lines)
                    STORE16(T, a[i], to + i * LINE_STEP * OUT_STRIDE + k);
        }
    }
}
#undef COPIES_TRANSPOSED_LOWER
#undef COPIES_TRANSPOSED_UPPER
#undef COPIES_TRANSPOSED_TURN
