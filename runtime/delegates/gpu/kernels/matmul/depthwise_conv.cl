// Depthwise convolution over float16 channels. A unit is TILE_H x TILE_W output pixels by CHANNELS / PARTS channels.
// All inputs of a tile row are loaded once and feed every output that they touch. Tiles whose windows lie inside of
// the image run without bounds checks; at the border inputs outside count as zero. The last tile of a row or column
// overlaps its neighbour: both store the same numbers.
// weights: [CHANNELS / 16][1 + FILTER_H * FILTER_W][16], the bias and then the taps.
// Defines: TILE_H, TILE_W, FILTER_H, FILTER_W, STRIDE_H, STRIDE_W, DILATION_H, DILATION_W, WEIGHT. All loops over them are
// unrolled, so that inputs and sums stay in registers. Parameters: IN_H, IN_W, IN_STRIDE, OUT_H, OUT_W, OUT_STRIDE, PAD_TOP,
// PAD_LEFT, BLOCK (channels of a unit), and as divisors PARTS, TILES_X and TILES_Y (tiles of a row, and rows of tiles).
#define PATCH_H ((TILE_H - 1) * STRIDE_H + (FILTER_H - 1) * DILATION_H + 1)
#define PATCH_W ((TILE_W - 1) * STRIDE_W + (FILTER_W - 1) * DILATION_W + 1)
#define TAPS (FILTER_H * FILTER_W)
#define TILE_N 16

// Row y of the patch, its inputs in `value`, into the sums of each output row that reads it.
#define ADD_ROW(y, value) \
    _Pragma("unroll") for (int ky = 0; ky < FILTER_H; ky++) { \
        const int r = ((y) - ky * DILATION_H) / STRIDE_H; \
        if ((y) >= ky * DILATION_H && r < TILE_H && r * STRIDE_H == (y) - ky * DILATION_H) \
            _Pragma("unroll") for (int kx = 0; kx < FILTER_W; kx++) { \
                const float16 tap = WEIGHTS16(w, (ky * FILTER_W + kx) * TILE_N, head, 0); \
                _Pragma("unroll") for (int i = 0; i < TILE_W; i++) \
                    sum[r][i] = value[i * STRIDE_W + kx * DILATION_W] * tap + sum[r][i]; \
            } \
    }

static void FUNC(const int t, const int nt, __global const float *restrict in, __global const uchar *restrict weights,
    __global float *restrict out PARAMETERS)
{
    // Offsets have 64 bits, because one of 32 is widened before each use.
    const long in_row = (long)IN_STRIDE * IN_W, out_row = (long)OUT_STRIDE * OUT_W;
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int tile = QUOTIENT(u, PARTS), row = QUOTIENT(tile, TILES_X), n = QUOTIENT(row, TILES_Y);
        const int first = (u - tile * PARTS) * BLOCK;
        const int ox = min((tile - row * TILES_X) * TILE_W, OUT_W - TILE_W);
        const int oy = min((row - n * TILES_Y) * TILE_H, OUT_H - TILE_H);
        const int iy = oy * STRIDE_H - PAD_TOP, ix = ox * STRIDE_W - PAD_LEFT;
        const bool inner = iy >= 0 && ix >= 0 && iy + PATCH_H <= IN_H && ix + PATCH_W <= IN_W;
        const int first_pixel = (n * OUT_H + oy) * OUT_W + ox;
        __global const float *corner = in + ((n * IN_H + iy) * IN_W + ix) * (long)IN_STRIDE;
        __global float *to = out + first_pixel * (long)OUT_STRIDE;
        for (int c = first; c < first + BLOCK; c += 16) {
            __global const float *head = PANEL_HEAD(weights, c / TILE_N, TAPS);
            __global const uchar *w = PANEL_ROWS(head);
            float16 sum[TILE_H][TILE_W];
            #pragma unroll
            for (int r = 0; r < TILE_H; r++)
                #pragma unroll
                for (int i = 0; i < TILE_W; i++)
                    sum[r][i] = load16(head);
            long in_step = IN_STRIDE, out_step = OUT_STRIDE;
            OPAQUE(in_step);
            if (inner) {
                #pragma unroll
                for (int y = 0; y < PATCH_H; y++) {
                    float16 value[PATCH_W];
                    __global const float *at = corner + y * in_row + c;
                    #pragma unroll
                    for (int x = 0; x < PATCH_W; x++, at += in_step)
                        value[x] = load16(at);
                    ADD_ROW(y, value)
                }
            } else {
                int left = ix, top = iy;
                OPAQUE(left);
                OPAQUE(top);
                #pragma unroll
                for (int y = 0; y < PATCH_H; y++) {
                    if ((uint)(top + y) >= IN_H)
                        continue;
                    float16 value[PATCH_W];
                    #pragma unroll
                    for (int x = 0; x < PATCH_W; x++)
                        value[x] = (uint)(left + x) < IN_W ? load16(corner + y * in_row + x * in_step + c) : (float16)0.0f;
                    ADD_ROW(y, value)
                }
            }
            OPAQUE(out_step);
            #pragma unroll
            for (int r = 0; r < TILE_H; r++) {
                __global float *at = to + r * out_row + c;
                #pragma unroll
                for (int i = 0; i < TILE_W; i++, at += out_step) {
                    const int p = first_pixel + r * OUT_W + i;
                    store16(EPILOGUE(sum[r][i], p, c), at);
                }
            }
        }
    }
}
#undef PATCH_H
#undef PATCH_W
#undef TAPS
#undef TILE_N
#undef ADD_ROW
