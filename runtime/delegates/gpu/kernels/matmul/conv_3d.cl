// Convolution over depth, height and width as a product without an unfolded copy. A unit is TILE_M consecutive output
// cells (over all volumes) by TILE_N channels, all sums in registers. For each tap of the window one pointer per cell is
// made (to a row of zeros outside of the volume), then the loop runs over the K input channels. The last tile overlaps
// its neighbour: both store the same numbers.
// weights: for each panel the bias, then the rows of each tap, [PANELS][1 + FILTER_D * FILTER_H * FILTER_W * K][TILE_N].
// zeros: K zeros.
// Defines: TILE_M, TILE_N, WEIGHT. Parameters: M, K, CHANNELS (of the output, padded), PANEL_OUTER and INNER_TILES as in
// conv/gemm.cl, IN_STRIDE, OUT_STRIDE, and for D, H and W: IN_, OUT_, FILTER_, STRIDE_, DILATION_, PAD_ (in front).
// Every sum starts as the bias. All loops over a tile have constant bounds and are unrolled, so its sums stay in registers.
#define VECTORS (TILE_N / 16)
static void FUNC(const int t, const int nt, __global const float *restrict in, __global const uchar *restrict weights,
    __global const float *restrict zeros, __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int outer = QUOTIENT(u, INNER_TILES), inner = u - outer * INNER_TILES;
        const int panel = PANEL_OUTER ? outer : inner;
        const int p = min((PANEL_OUTER ? inner : outer) * TILE_M, M - TILE_M);
        __global const float *head = PANEL_HEAD(weights, panel, FILTER_D * FILTER_H * FILTER_W * K);
        __global const uchar *w = PANEL_ROWS(head);
        float16 sum[TILE_M][VECTORS];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++)
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                sum[i][j] = load16(head + j * 16);
        // The first cell's position takes divisions; the next ones count on. Of a window the first tap is kept.
        int oy = p / OUT_W, ox = p - oy * OUT_W, oz = oy / OUT_H, volume = oz / OUT_D;
        oy -= oz * OUT_H;
        oz -= volume * OUT_D;
        int z[TILE_M], y[TILE_M], x[TILE_M], start[TILE_M];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++) {
            z[i] = oz * STRIDE_D - PAD_D;
            y[i] = oy * STRIDE_H - PAD_H;
            x[i] = ox * STRIDE_W - PAD_W;
            start[i] = (((volume * IN_D + z[i]) * IN_H + y[i]) * IN_W + x[i]) * IN_STRIDE;
            const int ends_row = ++ox == OUT_W, ends_frame = ends_row & (oy + 1 == OUT_H);
            const int ends_volume = ends_frame & (oz + 1 == OUT_D);
            ox = ends_row ? 0 : ox;
            oy = ends_frame ? 0 : oy + ends_row;
            oz = ends_volume ? 0 : oz + ends_frame;
            volume += ends_volume;
        }
        for (int tap = 0; tap < FILTER_D * FILTER_H * FILTER_W; tap++) {
            const int row = tap / FILTER_W, frame = row / FILTER_H, dz = frame * DILATION_D;
            const int dy = (row - frame * FILTER_H) * DILATION_H, dx = (tap - row * FILTER_W) * DILATION_W;
            __global const float *from = in + ((dz * IN_H + dy) * IN_W + dx) * IN_STRIDE;
            __global const float *a[TILE_M];
            #pragma unroll
            for (int i = 0; i < TILE_M; i++) {
                const bool inside = (uint)(z[i] + dz) < IN_D && (uint)(y[i] + dy) < IN_H && (uint)(x[i] + dx) < IN_W;
                a[i] = inside ? from + start[i] : zeros;
            }
            #pragma unroll 2
            for (int k = 0; k < K; k++) {
                float16 b[VECTORS];
                #pragma unroll
                for (int j = 0; j < VECTORS; j++)
                    b[j] = WEIGHTS16(w, k * TILE_N + j * 16, head, j * 16);
                #pragma unroll
                for (int i = 0; i < TILE_M; i++) {
                    const float16 value = (float16)(a[i][k]);
                    #pragma unroll
                    for (int j = 0; j < VECTORS; j++)
                        sum[i][j] = value * b[j] + sum[i][j];
                }
            }
            w += WEIGHT_BYTES(K * TILE_N);
        }
        #pragma unroll
        for (int j = 0; j < VECTORS; j++) {
            const int c = panel * TILE_N + j * 16;
            // The last panel may be wider than what is left of the channels.
            if (c < CHANNELS)
                #pragma unroll
                for (int i = 0; i < TILE_M; i++)
                    store16(EPILOGUE(sum[i][j], (p + i), c), out + (p + i) * OUT_STRIDE + c);
        }
    }
}
#undef VECTORS
