// Convolution of images with few channels, interleaved or planar. A unit is one output row: the input rows under its
// window are copied, with zeros around them, to private lines in which every tap of every pixel has a constant
// offset; then tiles of TILE_M pixels by TILE_N channels are summed in registers. The last tile overlaps its neighbour.
// weights: for each panel the bias, then a row for each tap in the order of the lines: [PANELS][1 + FILTER_H * PLANES *
// STEPS][TILE_N], where PLANES = 1 and STEPS = FILTER_W * IN_CHANNELS for interleaved channels, PLANES = IN_CHANNELS
// and STEPS = FILTER_W for planar ones.
// Defines: TILE_M, TILE_N, WEIGHT, PLANAR, IN_CHANNELS, IN_STRIDE (1: planar), FILTER_W, STRIDE_W and DILATION_W, of which the
// constant offsets are made, CAPACITY (floats of the lines, at least). Parameters: IN_H, IN_W, IN_STEP, OUT_H, OUT_W,
// OUT_STRIDE, CHANNELS (of the output, padded), PANELS, FILTER_H, STRIDE_H, DILATION_H, PAD_TOP, PAD_LEFT.
#ifndef STEM_ROWS
#define STEM_ROWS
// One input row to its place between the zeros on the left and on the right; rows outside of the image are zeros.
static inline void copy_row(__global const float *restrict from, float *restrict to, const int count, const bool inside)
{
    int x = 0;
    for (; x + 16 <= count; x += 16)
        vstore16(inside ? load16(from + x) : (float16)0.0f, 0, to + x);
    for (; x < count; x++)
        to[x] = inside ? from[x] : 0.0f;
}
#endif
#define VECTORS (TILE_N / 16)
#if !PLANAR
#define PLANES 1
#define STEPS (FILTER_W * IN_CHANNELS)
#define OFFSET(q) ((q) / IN_CHANNELS * DILATION_W * IN_STRIDE + (q) % IN_CHANNELS)
#else
#define PLANES IN_CHANNELS
#define STEPS FILTER_W
#define OFFSET(q) ((q) * DILATION_W)
#endif

// The zeros around the image are written once for each worker: rows only ever fill the same part between them.
static void FUNC(const int t, const int nt, __global const float *restrict in, __global const uchar *restrict weights,
    __global float *restrict out PARAMETERS)
{
    const int width = ((OUT_W - 1) * STRIDE_W + (FILTER_W - 1) * DILATION_W + 1) * IN_STRIDE;
    const int left = PAD_LEFT * IN_STRIDE, count = min(IN_W * IN_STRIDE, width - left);
    const int tiles = (OUT_W + TILE_M - 1) / TILE_M * PANELS;
    float lines[CAPACITY];
    for (int i = 0; i < FILTER_H * PLANES * width; i++)
        lines[i] = 0.0f;
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        for (int ky = 0; ky < FILTER_H; ky++) {
            const int iy = u % OUT_H * STRIDE_H - PAD_TOP + ky * DILATION_H;
            const bool inside = (uint)iy < IN_H;
            __global const float *from = in + (u / OUT_H * IN_H + (inside ? iy : 0)) * IN_W * IN_STRIDE;
            for (int plane = 0; plane < PLANES; plane++)
                copy_row(from + plane * IN_STEP, lines + (ky * PLANES + plane) * width + left, count, inside);
        }
        for (int tile = 0; tile < tiles; tile++) {
            const int column = QUOTIENT(tile, PANELS), panel = tile - column * PANELS;
            const int x = min(column * TILE_M, OUT_W - TILE_M);
            __global const float *head = PANEL_HEAD(weights, panel, FILTER_H * PLANES * STEPS);
            __global const uchar *w = PANEL_ROWS(head);
            float16 sum[TILE_M][VECTORS];
            #pragma unroll
            for (int i = 0; i < TILE_M; i++)
                #pragma unroll
                for (int j = 0; j < VECTORS; j++)
                    sum[i][j] = load16(head + j * 16);
            const float *a = lines + x * STRIDE_W * IN_STRIDE;
            for (int line = 0; line < FILTER_H * PLANES; line++) {
                #pragma unroll
                for (int q = 0; q < STEPS; q++) {
                    float16 b[VECTORS];
                    #pragma unroll
                    for (int j = 0; j < VECTORS; j++)
                        b[j] = WEIGHTS16(w, q * TILE_N + j * 16, head, j * 16);
                    #pragma unroll
                    for (int i = 0; i < TILE_M; i++) {
                        const float16 value = (float16)(a[i * STRIDE_W * IN_STRIDE + OFFSET(q)]);
                        #pragma unroll
                        for (int j = 0; j < VECTORS; j++)
                            sum[i][j] = value * b[j] + sum[i][j];
                    }
                }
                a += width;
                w += WEIGHT_BYTES(STEPS * TILE_N);
            }
            const int p = u * OUT_W + x;
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
}
#undef VECTORS
#undef PLANES
#undef STEPS
#undef OFFSET
