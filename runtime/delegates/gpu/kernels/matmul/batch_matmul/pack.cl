// Packs the right side of matrix products for gemm.cl: out[MATRICES][PANELS][K][TILE_N], columns in panels. The last panel
// overlaps its neighbour instead of being cut.
// A unit is 16 rows of a panel. Where ADJOINT is 1, a line of the input is a column: blocks of 16 x 16 are transposed in
// registers, because scalar copies would take as long as a product of a few rows. Else a line is a row.
// Defines: TILE_N, ADJOINT, IN(m), a generated expression: where matrix m begins. Parameters: those of the expression, K, N,
// CHANNELS (N, padded), IN_STRIDE (elements from line to line), and as divisors PANELS and BLOCKS (units of a panel).
// Lanes behind N or K are copied too, or come from line N - 1: gemm.cl multiplies none of the latter into a result that
// is kept, and reads none of the former.
#ifndef TRANSPOSE16
#define TRANSPOSE16
#ifdef __clang__
#define LOW_PAIRS(a, b) \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH_PAIRS(a, b) \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#else
#define LOW_PAIRS(a, b) (float16)(a.s0, b.s0, a.s1, b.s1, a.s2, b.s2, a.s3, b.s3, \
    a.s4, b.s4, a.s5, b.s5, a.s6, b.s6, a.s7, b.s7)
#define HIGH_PAIRS(a, b) (float16)(a.s8, b.s8, a.s9, b.s9, a.sa, b.sa, a.sb, b.sb, \
    a.sc, b.sc, a.sd, b.sd, a.se, b.se, a.sf, b.sf)
#endif
// With four bits of a row's number in front of four of a lane's, one round rotates the eight bits by one place: four
// rounds exchange rows and lanes.
static inline void transpose16(float16 *rows)
{
    #pragma unroll
    for (int round = 0; round < 4; round++) {
        float16 next[16];
        #pragma unroll
        for (int i = 0; i < 8; i++) {
            next[2 * i] = LOW_PAIRS(rows[i], rows[i + 8]);
            next[2 * i + 1] = HIGH_PAIRS(rows[i], rows[i + 8]);
        }
        #pragma unroll
        for (int i = 0; i < 16; i++)
            rows[i] = next[i];
    }
}
#endif
static void FUNC(const int t, const int nt, __global const float *restrict in, __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int place = QUOTIENT(u, BLOCKS), matrix = QUOTIENT(place, PANELS), k = (u - place * BLOCKS) * 16;
        const int first = min((place - matrix * PANELS) * TILE_N, CHANNELS - TILE_N);
        __global const float *from = in + IN(matrix);
        __global float *to = out + (place * K + k) * TILE_N;
#if ADJOINT
        #pragma unroll 1
        for (int j = 0; j < TILE_N; j += 16) {
            float16 block[16];
            #pragma unroll
            for (int i = 0; i < 16; i++)
                block[i] = load16(from + min(first + j + i, N - 1) * IN_STRIDE + k);
            transpose16(block);
            #pragma unroll
            for (int i = 0; i < 16; i++)
                if (k + i < K)
                    store16(block[i], to + i * TILE_N + j);
        }
#else
        for (int i = 0; i < min(16, K - k); i++)
            #pragma unroll
            for (int j = 0; j < TILE_N; j += 16)
                store16(load16(from + (k + i) * IN_STRIDE + first + j), to + i * TILE_N + j);
#endif
    }
}
