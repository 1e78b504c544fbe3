// Convolution with any window, stride, dilation, padding and groups, as a product without an unfolded copy.
// A unit is TILE_M consecutive output pixels (over all images) by TILE_N channels, all sums in registers. For each tap
// of the window one pointer per pixel is made (to a row of zeros outside of the image), then the loop runs over the
// K input channels of the panel's groups. A tap that is outside of the image for all pixels of the tile is left out, as
// most are of a window that is dilated to the image's size. The last tile overlaps its neighbour: both store the same.
// weights: for each panel the bias, then the rows of each tap, [PANELS][1 + FILTER_H * FILTER_W * K][TILE_N].
// zeros: as many zeros as K channels span.
// Defines: TILE_M, TILE_N, WEIGHT. Parameters: M, K, CHANNELS (of the output, padded), PANEL_OUTER and INNER_TILES as in
// gemm.cl, IN_H, IN_W, IN_CHANNELS, IN_STRIDE, IN_STEP, OUT_H, OUT_W, OUT_STRIDE, FILTER_H, FILTER_W, STRIDE_H, STRIDE_W,
// DILATION_H, DILATION_W, PAD_TOP, PAD_LEFT, GROUP_IN, GROUP_OUT (channels of a group).
// Every sum starts as the bias, so nothing is added at the end. All loops over a tile have constant bounds and are
// unrolled, so its sums stay in registers.
#define VECTORS (TILE_N / 16)
static void FUNC(const int t, const int nt, __global const float *restrict in, __global const uchar *restrict weights,
    __global const float *restrict zeros, __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int outer = QUOTIENT(u, INNER_TILES), inner = u - outer * INNER_TILES;
        const int panel = PANEL_OUTER ? outer : inner;
        const int p = min((PANEL_OUTER ? inner : outer) * TILE_M, M - TILE_M);
        const int first_channel = min(panel * TILE_N / GROUP_OUT * GROUP_IN, IN_CHANNELS - K);
        __global const float *head = PANEL_HEAD(weights, panel, FILTER_H * FILTER_W * K);
        __global const uchar *w = PANEL_ROWS(head);
        float16 sum[TILE_M][VECTORS];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++)
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                sum[i][j] = load16(head + j * 16);
        // The first pixel's position takes divisions; the next ones count on. Of a window the first tap is kept.
        int oy = p / OUT_W, ox = p - oy * OUT_W, image = oy / OUT_H;
        oy -= image * OUT_H;
        int y[TILE_M], x[TILE_M], start[TILE_M];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++) {
            y[i] = oy * STRIDE_H - PAD_TOP;
            x[i] = ox * STRIDE_W - PAD_LEFT;
            start[i] = ((image * IN_H + y[i]) * IN_W + x[i]) * IN_STRIDE + first_channel * IN_STEP;
            const int ends_row = ++ox == OUT_W, ends_image = ends_row & (oy + 1 == OUT_H);
            ox = ends_row ? 0 : ox;
            oy = ends_image ? 0 : oy + ends_row;
            image += ends_image;
        }
        for (int ky = 0; ky < FILTER_H; ky++)
            for (int kx = 0; kx < FILTER_W; kx++) {
                const int dy = ky * DILATION_H, dx = kx * DILATION_W;
                __global const float *tap = in + (dy * IN_W + dx) * IN_STRIDE;
                __global const float *a[TILE_M];
                bool is_read = false;
                #pragma unroll
                for (int i = 0; i < TILE_M; i++) {
                    const bool inside = (uint)(y[i] + dy) < IN_H && (uint)(x[i] + dx) < IN_W;
                    a[i] = inside ? tap + start[i] : zeros;
                    is_read |= inside;
                }
                const int depth = is_read ? K : 0;
                #pragma unroll 2
                for (int k = 0; k < depth; k++) {
                    float16 b[VECTORS];
                    #pragma unroll
                    for (int j = 0; j < VECTORS; j++)
                        b[j] = WEIGHTS16(w, k * TILE_N + j * 16, head, j * 16);
                    #pragma unroll
                    for (int i = 0; i < TILE_M; i++) {
                        const float16 value = (float16)(a[i][k * IN_STEP]);
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
            if (c < CHANNELS) {
                #pragma unroll
                for (int i = 0; i < TILE_M; i++)
                    store16(EPILOGUE(sum[i][j], (p + i), c), out + (p + i) * OUT_STRIDE + c);
            }
        }
    }
}
#undef VECTORS
