// Convolution over depth, height and width as a product without an unfolded copy. A unit is TILE_M consecutive output
// cells (over all volumes) by TILE_N channels, all sums in registers. For each tap of the window one pointer per cell is
// made (to a row of zeros outside of the volume), then the loop runs over the K input channels. The last tile overlaps
// its neighbour: both store the same numbers.
// weights: for each panel the bias, then the rows of each tap, [PANELS][1 + FILTER_D * FILTER_H * FILTER_W * K][TILE_N].
// zeros: K zeros.
// Defines: M, K, CHANNELS (of the output, padded), TILE_M, TILE_N, PANELS, PANEL_OUTER, IN_STRIDE, OUT_STRIDE, and for
// D, H and W: IN_, OUT_, FILTER_, STRIDE_, DILATION_, PAD_ (in front).
// Every sum starts as the bias. All loops over a tile have constant bounds and are unrolled, so its sums stay in registers.
#define VECTORS (TILE_N / 16)
#define ROW_TILES ((M + TILE_M - 1) / TILE_M)
static void FUNC(const int t, const int nt, __global const float *restrict in, __global const uchar *restrict weights,
    __global const float *restrict zeros, __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int panel = PANEL_OUTER ? u / ROW_TILES : u % PANELS;
        const int p = min((PANEL_OUTER ? u % ROW_TILES : u / PANELS) * TILE_M, M - TILE_M);
        __global const float *head = PANEL_HEAD(weights, panel, FILTER_D * FILTER_H * FILTER_W * K);
        __global const uchar *w = PANEL_ROWS(head);
        float16 sum[TILE_M][VECTORS];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++)
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                sum[i][j] = load16(head + j * 16);
        int volume[TILE_M], z[TILE_M], y[TILE_M], x[TILE_M];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++) {
            volume[i] = (p + i) / (OUT_D * OUT_H * OUT_W);
            z[i] = (p + i) / (OUT_H * OUT_W) % OUT_D * STRIDE_D - PAD_D;
            y[i] = (p + i) / OUT_W % OUT_H * STRIDE_H - PAD_H;
            x[i] = (p + i) % OUT_W * STRIDE_W - PAD_W;
        }
        for (int tap = 0; tap < FILTER_D * FILTER_H * FILTER_W; tap++) {
            const int kz = tap / (FILTER_H * FILTER_W), ky = tap / FILTER_W % FILTER_H, kx = tap % FILTER_W;
            __global const float *a[TILE_M];
            #pragma unroll
            for (int i = 0; i < TILE_M; i++) {
                const int iz = z[i] + kz * DILATION_D, iy = y[i] + ky * DILATION_H, ix = x[i] + kx * DILATION_W;
                const bool inside = (uint)iz < IN_D && (uint)iy < IN_H && (uint)ix < IN_W;
                a[i] = inside ? in + (((volume[i] * IN_D + iz) * IN_H + iy) * IN_W + ix) * IN_STRIDE : zeros;
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
        for (int i = 0; i < TILE_M; i++)
            #pragma unroll
            for (int j = 0; j < VECTORS; j++) {
                const int c = panel * TILE_N + j * 16;
// The last panel may be wider than what is left of the channels.
#if PANELS * TILE_N > CHANNELS
                if (c < CHANNELS)
#endif
                store16(EPILOGUE(sum[i][j], (p + i), c), out + (p + i) * OUT_STRIDE + c);
            }
    }
}
#undef VECTORS
#undef ROW_TILES
