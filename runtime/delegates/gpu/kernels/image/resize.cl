// Bilinear and nearest-neighbour resizing; a unit is one output row.
// Defines: ALIGN_CORNERS, HALF_PIXEL, BILINEAR, T (float where it is BILINEAR). Parameters: IN_H, IN_W, OUT_H, OUT_W, CHANNELS
// (padded), IN_STRIDE, OUT_STRIDE, SCALE_H, SCALE_W. The formulas are those of LiteRT's reference_ops `resize_bilinear.h`, `resize_nearest_neighbor.h`.
// Positions are computed per pixel instead of read from tables: the loop over channels outweighs them.
#if BILINEAR
#define POSITION(i, scale) (HALF_PIXEL ? ((i) + 0.5f) * (scale) - 0.5f : (i) * (scale))
#else
#define NEAREST(i, scale, size) \
    clamp((int)(ALIGN_CORNERS ? round(((i) + (HALF_PIXEL ? 0.5f : 0.0f)) * (scale)) \
                              : floor(((i) + (HALF_PIXEL ? 0.5f : 0.0f)) * (scale))), 0, (size) - 1)
#endif
static void FUNC(const int t, const int nt, __global const T *restrict in, __global T *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        __global const T *image = in + u / OUT_H * (IN_H * IN_W * IN_STRIDE);
        const int oy = u % OUT_H;
#if BILINEAR
        const float y = POSITION(oy, SCALE_H);
        const int y0 = clamp((int)floor(y), 0, IN_H - 1), y1 = min((int)ceil(y), IN_H - 1);
        const float fy = y - y0;
        __global const float *row0 = image + y0 * (IN_W * IN_STRIDE), *row1 = image + y1 * (IN_W * IN_STRIDE);
#else
        __global const T *row = image + NEAREST(oy, SCALE_H, IN_H) * (IN_W * IN_STRIDE);
#endif
        for (int ox = 0; ox < OUT_W; ox++) {
            const int p = u * OUT_W + ox;
#if BILINEAR
            const float x = POSITION(ox, SCALE_W);
            const int x0 = clamp((int)floor(x), 0, IN_W - 1), x1 = min((int)ceil(x), IN_W - 1);
            const float fx = x - x0;
#else
            const int x0 = NEAREST(ox, SCALE_W, IN_W);
#endif
            for (int c = 0; c < CHANNELS; c += 16) {
#if BILINEAR
                const float16 v = load16(row0 + x0 * IN_STRIDE + c) * ((1 - fy) * (1 - fx))
                    + load16(row1 + x0 * IN_STRIDE + c) * (fy * (1 - fx))
                    + load16(row0 + x1 * IN_STRIDE + c) * ((1 - fy) * fx)
                    + load16(row1 + x1 * IN_STRIDE + c) * (fy * fx);
#else
                const VECTOR(T, 16) v = LOAD16(T, row + x0 * IN_STRIDE + c);
#endif
                STORE16(T, EPILOGUE(v, p, c), out + p * OUT_STRIDE + c);
            }
        }
    }
}
#undef POSITION
#undef NEAREST
