// Convolution 1x1 with stride 1, and every other product of pixels and weights: out[p][n] = in[p][:] . W[:][n] + bias[n].
// A unit is TILE_M pixels by TILE_N channels, all sums in registers; the last tile of a row of units overlaps its
// neighbour instead of being cut (both store the same numbers).
// weights: for each panel of TILE_N channels, the bias and then K rows, [PANELS][1 + K][TILE_N].
// Defines: TILE_M, TILE_N, WEIGHT. Parameters: M, K, CHANNELS (of the output, padded), IN_STRIDE and IN_STEP (elements from
// pixel to pixel, from channel to channel), OUT_STRIDE, PANEL_OUTER (1: all pixels of a panel, then the next panel; 0: all
// panels of some pixels, then the next pixels), INNER_TILES (how many units are between such steps).
// Every sum starts as the bias, so nothing is added at the end. An input value is spread over a vector and serves all
// columns of its row; a vector of weights serves all rows.
#define VECTORS (TILE_N / 16)
static void FUNC(const int t, const int nt, __global const float *restrict in,
    __global const uchar *restrict weights, __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int outer = QUOTIENT(u, INNER_TILES), inner = u - outer * INNER_TILES;
        const int panel = PANEL_OUTER ? outer : inner;
        const int p = min((PANEL_OUTER ? inner : outer) * TILE_M, M - TILE_M);
        __global const float *a = in + p * IN_STRIDE;
        __global const float *head = PANEL_HEAD(weights, panel, K);
        __global const uchar *w = PANEL_ROWS(head);
        float16 sum[TILE_M][VECTORS];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++)
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                sum[i][j] = load16(head + j * 16);
        #pragma unroll 2
        for (int k = 0; k < K; k++, a += IN_STEP) {
            float16 b[VECTORS];
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                b[j] = WEIGHTS16(w, k * TILE_N + j * 16, head, j * 16);
            #pragma unroll
            for (int i = 0; i < TILE_M; i++) {
                const float16 x = (float16)(a[i * IN_STRIDE]);
                #pragma unroll
                for (int j = 0; j < VECTORS; j++)
                    sum[i][j] = x * b[j] + sum[i][j];
            }
        }
        #pragma unroll
        for (int j = 0; j < VECTORS; j++) {
            const int c = panel * TILE_N + j * 16;
            // The last panel may be wider than what is left of the channels.
            if (c < CHANNELS) {
                #pragma unroll
                for (int i = 0; i < TILE_M; i++)
                    store16(EPILOGUE(sum[i][j], (p + i), c), out + (p + i) * OUT_STRIDE + c);
            }
        }
    }
}
#undef VECTORS
