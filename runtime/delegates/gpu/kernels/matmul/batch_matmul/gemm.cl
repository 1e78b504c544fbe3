// Matrix products: out[b][i][:] = sum over k of left[b][i][k] * right[b][k][:], either side broadcast over batches.
// A unit is TILE_M rows by TILE_N columns of one product, all sums in registers. The last tile of rows or columns overlaps
// its neighbour instead of being cut: both store the same numbers.
// right: rows of N numbers, padded to CHANNELS; or, where PACKED is 1, panels [PANELS][K][TILE_N] of pack.cl.
// Defines: M, N, K, CHANNELS (N, padded), TILE_M, TILE_N, PANELS, PANEL_OUTER (1: all rows of a panel, then the next
// panel), PACKED, LEFT_ROW (elements from row to row), LEFT_STEP (from k to k + 1 within INNER neighbours), LEFT_OUTER
// (from one group of INNER to the next), RIGHT_ROW, OUT_STRIDE, BATCH1 and BATCH2 (extents of the last two of three batch
// dimensions), and for each dimension LEFT_BATCHd and RIGHT_BATCHd (elements from one batch to the next, 0: broadcast).
// The left side is read one number at a time, so it may lie in any order.
#define VECTORS (TILE_N / 16)
#define ROW_TILES ((M + TILE_M - 1) / TILE_M)
#define MATRIX(side, b) \
    ((b) / (BATCH1 * BATCH2) * side##0 + (b) / BATCH2 % BATCH1 * side##1 + (b) % BATCH2 * side##2)
static void FUNC(const int t, const int nt, __global const float *restrict left,
    __global const float *restrict right, __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int batch = u / (PANELS * ROW_TILES), tile = u % (PANELS * ROW_TILES);
        const int panel = PANEL_OUTER ? tile / ROW_TILES : tile % PANELS;
        const int row = min((PANEL_OUTER ? tile % ROW_TILES : tile / PANELS) * TILE_M, M - TILE_M);
        const int first = min(panel * TILE_N, CHANNELS - TILE_N);
        __global const float *a = left + MATRIX(LEFT_BATCH, batch) + row * LEFT_ROW;
        __global const float *w = right + MATRIX(RIGHT_BATCH, batch) + (PACKED ? panel * (K * TILE_N) : first);
        float16 sum[TILE_M][VECTORS];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++)
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                sum[i][j] = (float16)0.0f;
        for (int outer = 0; outer < K / INNER; outer++) {
            #pragma unroll 2
            for (int k = 0; k < INNER; k++) {
                float16 b[VECTORS];
                #pragma unroll
                for (int j = 0; j < VECTORS; j++)
                    b[j] = load16(w + k * RIGHT_ROW + j * 16);
                #pragma unroll
                for (int i = 0; i < TILE_M; i++) {
                    const float16 x = (float16)(a[i * LEFT_ROW + k * LEFT_STEP]);
                    #pragma unroll
                    for (int j = 0; j < VECTORS; j++)
                        sum[i][j] = x * b[j] + sum[i][j];
                }
            }
            a += LEFT_OUTER;
            w += INNER * RIGHT_ROW;
        }
        #pragma unroll
        for (int i = 0; i < TILE_M; i++)
            #pragma unroll
            for (int j = 0; j < VECTORS; j++) {
                const int c = first + j * 16, p = batch * M + row + i;
// Behind the last column stands what lies there in the right side, or its product with an infinity.
#if N % 16
                sum[i][j] = mask16(sum[i][j], c, N);
#endif
                store16(EPILOGUE(sum[i][j], p, c), out + p * OUT_STRIDE + c);
            }
    }
}
#undef VECTORS
#undef ROW_TILES
#undef MATRIX
