// Matrix products: out[b][i][:] = sum over k of left[b][i][k] * right[b][k][:], either side broadcast over batches.
// A unit is TILE_M rows by TILE_N columns of one product, all sums in registers. The last tile of rows or columns overlaps
// its neighbour instead of being cut: both store the same numbers.
// right: rows of N numbers, padded to CHANNELS; or, where PACKED is 1, panels [PANELS][K][TILE_N] of pack.cl.
// Defines: TILE_M, TILE_N, and LEFT(b) and RIGHT(b), generated expressions: where the matrices of batch b begin.
// Parameters: those of the expressions, M, N, K, CHANNELS (N, padded), PANEL_OUTER and INNER_TILES as in conv/gemm.cl, PACKED,
// LEFT_ROW (elements from row to row), LEFT_STEP (from k to k + 1 within INNER neighbours), LEFT_OUTER (from one of the GROUPS
// of INNER to the next), RIGHT_ROW, OUT_STRIDE, and as a divisor TILES (units of a product).
// The left side is read one number at a time, so it may lie in any order.
#define VECTORS (TILE_N / 16)
static void FUNC(const int t, const int nt, __global const float *restrict left,
    __global const float *restrict right, __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int batch = QUOTIENT(u, TILES), tile = u - batch * TILES;
        const int outer_tile = QUOTIENT(tile, INNER_TILES), inner_tile = tile - outer_tile * INNER_TILES;
        const int panel = PANEL_OUTER ? outer_tile : inner_tile;
        const int row = min((PANEL_OUTER ? inner_tile : outer_tile) * TILE_M, M - TILE_M);
        const int first = min(panel * TILE_N, CHANNELS - TILE_N);
        __global const float *a = left + LEFT(batch) + row * LEFT_ROW;
        __global const float *w = right + RIGHT(batch) + (PACKED ? panel * (K * TILE_N) : first);
        float16 sum[TILE_M][VECTORS];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++)
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                sum[i][j] = (float16)0.0f;
        for (int outer = 0; outer < GROUPS; outer++) {
            #pragma unroll 2
            for (int k = 0; k < INNER; k++, a += LEFT_STEP, w += RIGHT_ROW) {
                float16 b[VECTORS];
                #pragma unroll
                for (int j = 0; j < VECTORS; j++)
                    b[j] = load16(w + j * 16);
                #pragma unroll
                for (int i = 0; i < TILE_M; i++) {
                    const float16 x = (float16)(a[i * LEFT_ROW]);
                    #pragma unroll
                    for (int j = 0; j < VECTORS; j++)
                        sum[i][j] = x * b[j] + sum[i][j];
                }
            }
            a += LEFT_OUTER - INNER * LEFT_STEP;
        }
        #pragma unroll
        for (int j = 0; j < VECTORS; j++) {
            const int c = first + j * 16, p = batch * M + row;
            // Behind the last column stands what lies there in the right side, or its product with an infinity.
            if (c + 16 > N) {
                #pragma unroll
                for (int i = 0; i < TILE_M; i++)
                    sum[i][j] = mask16(sum[i][j], c, N);
            }
            #pragma unroll
            for (int i = 0; i < TILE_M; i++)
                store16(EPILOGUE(sum[i][j], (p + i), c), out + (p + i) * OUT_STRIDE + c);
        }
    }
}
#undef VECTORS
