// gemm.cl for processors that multiply pairs of bfloat16 by one instruction and add both products to a float.
// in: rows of pairs, made by bf16_pairs.cl, [M][PAIRS]. weights: panels of BF16, pair by pair: the weights of k and k + 1 of
// a column lie side by side.
// Defines: TILE_M, TILE_N, WEIGHT (BF16). Parameters: M, PAIRS, CHANNELS, OUT_STRIDE, PANEL_OUTER, INNER_TILES.
#ifndef ADD_PAIRS
#define ADD_PAIRS(x, y, sum) __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y))
#endif
#define VECTORS (TILE_N / 16)
static void FUNC(const int t, const int nt, __global const int *restrict in, __global const uchar *restrict weights,
    __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int outer = QUOTIENT(u, INNER_TILES), inner = u - outer * INNER_TILES;
        const int panel = PANEL_OUTER ? outer : inner;
        const int p = min((PANEL_OUTER ? inner : outer) * TILE_M, M - TILE_M);
        __global const int *a = in + p * PAIRS;
        __global const float *head = PANEL_HEAD(weights, panel, 2 * PAIRS);
        __global const float *w = (__global const float *)PANEL_ROWS(head);
        float16 sum[TILE_M][VECTORS];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++)
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                sum[i][j] = load16(head + j * 16);
        for (int k = 0; k < PAIRS; k++) {
            int16 b[VECTORS];
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                b[j] = as_int16(load16(w + k * TILE_N + j * 16));
            #pragma unroll
            for (int i = 0; i < TILE_M; i++) {
                const int16 x = (int16)(a[i * PAIRS + k]);
                #pragma unroll
                for (int j = 0; j < VECTORS; j++)
                    ADD_PAIRS(x, b[j], sum[i][j]);
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
