// Transposed convolution: each output pixel gathers the taps that reach it. The pixels of a phase (their positions have
// equal remainders by the strides) read neighbouring inputs through the same taps, so a unit is TILE_M pixels of one
// phase by TILE_N channels, all sums in registers. Phases have unlike numbers of taps; units take them in turn, so that
// every worker gets some of each. Where a phase has fewer positions than the longest one, its last pixel is computed
// again, and the last tile overlaps its neighbour: both store the same numbers.
// weights: for each panel the bias, then the rows of each tap, [PANELS][1 + FILTER_H * FILTER_W * K][TILE_N].
// zeros: K zeros, read in place of inputs outside of the image.
// Defines: TILE_M, TILE_N, WEIGHT. Parameters: M (pixels of the longest phase, all images), K, CHANNELS (of the output,
// padded), PANEL_OUTER and INNER_TILES as in conv/gemm.cl, IN_STRIDE, OUT_STRIDE, and for H and W: IN_, OUT_, FILTER_,
// STRIDE_, CUT_ (rows of the whole extent in front of the output), PHASES_, STEPS_ (positions of the longest phase). PHASES,
// PHASES_W and the strides are divisors.
// Every sum starts as the bias. All loops over a tile have constant bounds and are unrolled, so its sums stay in registers.
#define VECTORS (TILE_N / 16)
static void FUNC(const int t, const int nt, __global const float *restrict in, __global const uchar *restrict weights,
    __global const float *restrict zeros, __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int outer = QUOTIENT(u, INNER_TILES), inner = u - outer * INNER_TILES;
        const int panel = PANEL_OUTER ? outer : inner, tile = PANEL_OUTER ? inner : outer;
        const int row = QUOTIENT(tile, PHASES), p = min(row * TILE_M, M - TILE_M), phase = tile - row * PHASES;
        const int phase_y = QUOTIENT(phase, PHASES_W), phase_x = phase - phase_y * PHASES_W;
        // The first tap of the phase, and the input under it of the phase's first position. The next taps follow in steps of
        // the stride, each one input further in front.
        const int lead_y = QUOTIENT(phase_y + CUT_H, STRIDE_H), lead_x = QUOTIENT(phase_x + CUT_W, STRIDE_W);
        const int first_y = phase_y + CUT_H - lead_y * STRIDE_H, first_x = phase_x + CUT_W - lead_x * STRIDE_W;
        const int last_y = QUOTIENT(OUT_H - 1 - phase_y, STRIDE_H), last_x = QUOTIENT(OUT_W - 1 - phase_x, STRIDE_W);
        __global const float *head = PANEL_HEAD(weights, panel, FILTER_H * FILTER_W * K);
        __global const uchar *w = PANEL_ROWS(head);
        float16 sum[TILE_M][VECTORS];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++)
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                sum[i][j] = load16(head + j * 16);
        // The first pixel's position takes divisions; the next ones count on.
        int step_y = p / STEPS_W, step_x = p - step_y * STEPS_W, image = step_y / STEPS_H;
        step_y -= image * STEPS_H;
        int y[TILE_M], x[TILE_M], start[TILE_M], target[TILE_M];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++) {
            const int oy = min(step_y, last_y), ox = min(step_x, last_x);
            y[i] = oy + lead_y;
            x[i] = ox + lead_x;
            start[i] = ((image * IN_H + y[i]) * IN_W + x[i]) * IN_STRIDE;
            target[i] = (image * OUT_H + oy * STRIDE_H + phase_y) * OUT_W + ox * STRIDE_W + phase_x;
            const int ends_row = ++step_x == STEPS_W, ends_image = ends_row & (step_y + 1 == STEPS_H);
            step_x = ends_row ? 0 : step_x;
            step_y = ends_image ? 0 : step_y + ends_row;
            image += ends_image;
        }
        for (int ky = first_y, dy = 0; ky < FILTER_H; ky += STRIDE_H, dy++)
            for (int kx = first_x, dx = 0; kx < FILTER_W; kx += STRIDE_W, dx++) {
                __global const uchar *tap = w + WEIGHT_BYTES((ky * FILTER_W + kx) * (K * TILE_N));
                __global const float *from = in - (dy * IN_W + dx) * IN_STRIDE;
                __global const float *a[TILE_M];
                #pragma unroll
                for (int i = 0; i < TILE_M; i++) {
                    const bool inside = (uint)(y[i] - dy) < IN_H && (uint)(x[i] - dx) < IN_W;
                    a[i] = inside ? from + start[i] : zeros;
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
        for (int j = 0; j < VECTORS; j++) {
            const int c = panel * TILE_N + j * 16;
            // The last panel may be wider than what is left of the channels.
            if (c < CHANNELS)
                #pragma unroll
                for (int i = 0; i < TILE_M; i++)
                    store16(EPILOGUE(sum[i][j], target[i], c), out + target[i] * OUT_STRIDE + c);
        }
    }
}
#undef VECTORS
