// Packs the right side of matrix products of int8 for levels.cl, in panels of COLUMNS columns, of which the last overlaps its
// neighbour. 128 is added to the levels, so that they are bytes without a sign; four rows of a column are one int. A panel is
// a line of what the left side's zero point adds to the sums of each column, then [FOURS][COLUMNS] ints. Rows behind K are
// zero, and so are their products.
// A unit is a panel. Where ADJOINT is 1, a line of the input is a column, else a row.
// Defines: COLUMNS, ADJOINT, IN(m), a generated expression: where matrix m begins. Parameters: those of the expression, K, N,
// CHANNELS (N, padded), FOURS, IN_STRIDE (elements from line to line), LEFT_ZERO, and as a divisor PANELS (of a matrix).
#define LOWER_PAIRS(a, b) \
    (uint16)((a).s0, (b).s0, (a).s1, (b).s1, (a).s4, (b).s4, (a).s5, (b).s5, \
        (a).s8, (b).s8, (a).s9, (b).s9, (a).sc, (b).sc, (a).sd, (b).sd)
#define UPPER_PAIRS(a, b) \
    (uint16)((a).s2, (b).s2, (a).s3, (b).s3, (a).s6, (b).s6, (a).s7, (b).s7, \
        (a).sa, (b).sa, (a).sb, (b).sb, (a).se, (b).se, (a).sf, (b).sf)
static void FUNC(const int t, const int nt, __global const char *restrict in, __global int *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int matrix = QUOTIENT(u, PANELS), first = min((u - matrix * PANELS) * COLUMNS, CHANNELS - COLUMNS);
        __global const uchar *from = (__global const uchar *)in + IN(matrix);
        __global int *to = out + (long)u * (1 + FOURS) * COLUMNS;
        for (int j = first; j < first + COLUMNS; j += 16) {
            uint16 total = (uint16)0;
            for (int k = 0; k < K; k += 16) {
                uint16 fours[4];
#if ADJOINT
                // Four neighbouring columns of each of four vectors, which pairs of pairs put side by side.
                uint16 wide[4], pairs[4];
                #pragma unroll
                for (int i = 0; i < 4; i++) {
                    uint4 column[4];
                    #pragma unroll
                    for (int n = 0; n < 4; n++)
                        column[n] = vload4(0, (__global const uint *)(from + min(j + 4 * n + i, N - 1) * IN_STRIDE + k));
                    wide[i] = (uint16)(column[0], column[1], column[2], column[3]) ^ 0x80808080u;
                }
                #pragma unroll
                for (int i = 0; i < 2; i++) {
                    pairs[i] = LOWER_PAIRS(wide[2 * i], wide[2 * i + 1]);
                    pairs[2 + i] = UPPER_PAIRS(wide[2 * i], wide[2 * i + 1]);
                }
                #pragma unroll
                for (int i = 0; i < 4; i += 2) {
                    const ulong8 a = as_ulong8(pairs[i]), b = as_ulong8(pairs[i + 1]);
                    fours[i] = as_uint16((ulong8)(a.s0, b.s0, a.s2, b.s2, a.s4, b.s4, a.s6, b.s6));
                    fours[i + 1] = as_uint16((ulong8)(a.s1, b.s1, a.s3, b.s3, a.s5, b.s5, a.s7, b.s7));
                }
#else
                #pragma unroll
                for (int i = 0; i < 4; i++) {
                    uint16 row[4];
                    #pragma unroll
                    for (int n = 0; n < 4; n++)
                        row[n] = CONVERT16(uint16, LOAD_AS(uchar16, from + min(k + 4 * i + n, K - 1) * IN_STRIDE + j));
                    fours[i] = (row[0] | row[1] << 8 | row[2] << 16 | row[3] << 24) ^ 0x80808080u;
                }
#endif
                #pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int rows = K - k - 4 * i;
                    if (rows <= 0)
                        continue;
                    const uint16 bytes = fours[i] & (rows < 4 ? (1u << 8 * rows) - 1 : 0xffffffffu);
                    const uint16 halves = (bytes & 0xff00ffu) + (bytes >> 8 & 0xff00ffu);
                    total += (halves & 0xffffu) + (halves >> 16);
                    STORE16(int, as_int16(bytes), to + (1 + k / 4 + i) * COLUMNS + j - first);
                }
            }
            STORE16(int, as_int16(total) * -LEFT_ZERO, to + j - first);
        }
    }
}
#undef LOWER_PAIRS
#undef UPPER_PAIRS
