// Transposed convolution: each output pixel gathers the taps that reach it. The pixels of a phase (their positions have
// equal remainders by the strides) read neighbouring inputs through the same taps, so a unit is TILE_M pixels of one
// phase by TILE_N channels, all sums in registers. Phases have unlike numbers of taps; units take them in turn, so that
// every worker gets some of each. Where a phase has fewer positions than the longest one, its last pixel is computed
// again, and the last tile overlaps its neighbour: both store the same numbers.
// weights: for each panel the bias, then the rows of each tap, [PANELS][1 + FILTER_H * FILTER_W * K][TILE_N].
// zeros: K zeros, read in place of inputs outside of the image.
// Defines: M (pixels of the longest phase, all images), K, CHANNELS (of the output, padded), TILE_M, TILE_N, PANELS,
// PANEL_OUTER, IN_STRIDE, OUT_STRIDE, and for H and W: IN_, OUT_, FILTER_, STRIDE_, CUT_ (rows of the whole extent in
// front of the output), PHASES_, STEPS_ (positions of the longest phase).
// Every sum starts as the bias. All loops over a tile have constant bounds and are unrolled, so its sums stay in registers.
#define VECTORS (TILE_N / 16)
#define PHASES (PHASES_H * PHASES_W)
#define TILES (PHASES * ((M + TILE_M - 1) / TILE_M))
static void FUNC(const int t, const int nt, __global const float *restrict in, __global const uchar *restrict weights,
    __global const float *restrict zeros, __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int panel = PANEL_OUTER ? u / TILES : u % PANELS, tile = PANEL_OUTER ? u % TILES : u / PANELS;
        const int phase_y = tile % PHASES / PHASES_W, phase_x = tile % PHASES_W;
        const int p = min(tile / PHASES * TILE_M, M - TILE_M);
        // The first tap of the phase; the next ones follow in steps of the stride, each one input further in front.
        const int first_y = (phase_y + CUT_H) % STRIDE_H, first_x = (phase_x + CUT_W) % STRIDE_W;
        __global const float *head = PANEL_HEAD(weights, panel, FILTER_H * FILTER_W * K);
        __global const uchar *w = PANEL_ROWS(head);
        float16 sum[TILE_M][VECTORS];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++)
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                sum[i][j] = load16(head + j * 16);
        int image[TILE_M], y[TILE_M], x[TILE_M];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++) {
            image[i] = (p + i) / (STEPS_H * STEPS_W);
            y[i] = min((p + i) / STEPS_W % STEPS_H, (OUT_H - 1 - phase_y) / STRIDE_H) * STRIDE_H + phase_y;
            x[i] = min((p + i) % STEPS_W, (OUT_W - 1 - phase_x) / STRIDE_W) * STRIDE_W + phase_x;
        }
        for (int ky = first_y; ky < FILTER_H; ky += STRIDE_H)
            for (int kx = first_x; kx < FILTER_W; kx += STRIDE_W) {
                __global const uchar *tap = w + WEIGHT_BYTES((ky * FILTER_W + kx) * (K * TILE_N));
                __global const float *a[TILE_M];
                #pragma unroll
                for (int i = 0; i < TILE_M; i++) {
                    // The differences are multiples of the strides.
                    const int dy = y[i] + CUT_H - ky, dx = x[i] + CUT_W - kx;
                    const int iy = dy / STRIDE_H, ix = dx / STRIDE_W;
                    const bool inside = dy >= 0 && dx >= 0 && iy < IN_H && ix < IN_W;
                    a[i] = inside ? in + ((image[i] * IN_H + iy) * IN_W + ix) * IN_STRIDE : zeros;
                }
                #pragma unroll 2
                for (int k = 0; k < K; k++) {
                    float16 b[VECTORS];
                    #pragma unroll
                    for (int j = 0; j < VECTORS; j++)
                        b[j] = WEIGHTS16(tap, k * TILE_N + j * 16, head, j * 16);
                    #pragma unroll
                    for (int i = 0; i < TILE_M; i++) {
                        const float16 value = (float16)(a[i][k]);
                        #pragma unroll
                        for (int j = 0; j < VECTORS; j++)
                            sum[i][j] = value * b[j] + sum[i][j];
                    }
                }
            }
        #pragma unroll
        for (int i = 0; i < TILE_M; i++)
            #pragma unroll
            for (int j = 0; j < VECTORS; j++) {
                const int c = panel * TILE_N + j * 16, q = (image[i] * OUT_H + y[i]) * OUT_W + x[i];
// The last panel may be wider than what is left of the channels.
#if PANELS * TILE_N > CHANNELS
                if (c < CHANNELS)
#endif
                store16(EPILOGUE(sum[i][j], q, c), out + q * OUT_STRIDE + c);
            }
    }
}
#undef VECTORS
#undef PHASES
#undef TILES
