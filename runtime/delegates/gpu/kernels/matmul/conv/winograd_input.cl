// Winograd's convolution F(TILE x TILE, 3 x 3), first phase: V = B' d B for each patch d of SIDE x SIDE inputs,
// SIDE = TILE + 2 (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015). A unit is one row of
// tiles, whose pixels lie DILATION apart. out: [SIDE * SIDE][TILES][CHANNELS].
// Defines: TILE (2 or 4). Parameters: TILES, IN_H, IN_W, IN_STRIDE, TILES_Y, TILES_X, DILATION, CHANNELS (padded),
// PAD_TOP, PAD_LEFT.
// TRANSFORM is one side of that product, for four or six numbers: applied to columns, then to rows. Elements of a patch
// are stored far apart, because the second phase multiplies all patches of one element.
#define SIDE (TILE + 2)
#if TILE == 2
#define TRANSFORM(d, step, v) \
    v[0] = d[0] - d[2 * step]; \
    v[1] = d[step] + d[2 * step]; \
    v[2] = d[2 * step] - d[step]; \
    v[3] = d[step] - d[3 * step];
#else
#define TRANSFORM(d, step, v) \
    { \
        const float16 even = d[4 * step] - 4.0f * d[2 * step], odd = d[3 * step] - 4.0f * d[step]; \
        const float16 wide = d[4 * step] - d[2 * step], twice = 2.0f * (d[3 * step] - d[step]); \
        v[0] = 4.0f * d[0] - 5.0f * d[2 * step] + d[4 * step]; \
        v[1] = even + odd; \
        v[2] = even - odd; \
        v[3] = wide + twice; \
        v[4] = wide - twice; \
        v[5] = 4.0f * d[step] - 5.0f * d[3 * step] + d[5 * step]; \
    }
#endif
static void FUNC(const int t, const int nt, __global const float *restrict in, __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int n = u / TILES_Y, ty = u % TILES_Y;
        const int iy = ty / DILATION * DILATION * TILE + ty % DILATION - PAD_TOP;
        for (int tile = 0; tile < TILES_X; tile++) {
            const int ix = tile / DILATION * DILATION * TILE + tile % DILATION - PAD_LEFT;
            __global float *to = out + (u * TILES_X + tile) * CHANNELS;
            for (int c = 0; c < CHANNELS; c += 16) {
                long plane = (long)TILES * CHANNELS;
                OPAQUE(plane);
                float16 columns[SIDE * SIDE];
                #pragma unroll
                for (int x = 0; x < SIDE; x++) {
                    float16 d[SIDE], v[SIDE];
                    #pragma unroll
                    for (int y = 0; y < SIDE; y++) {
                        const int row = iy + y * DILATION, column = ix + x * DILATION;
                        const bool inside = (uint)row < IN_H && (uint)column < IN_W;
                        __global const float *from = in + ((n * IN_H + row) * IN_W + column) * IN_STRIDE + c;
                        d[y] = inside ? load16(from) : (float16)0.0f;
                    }
                    TRANSFORM(d, 1, v)
                    #pragma unroll
                    for (int y = 0; y < SIDE; y++)
                        columns[y * SIDE + x] = v[y];
                }
                #pragma unroll
                for (int y = 0; y < SIDE; y++) {
                    float16 v[SIDE];
                    TRANSFORM((columns + y * SIDE), 1, v)
                    #pragma unroll
                    for (int x = 0; x < SIDE; x++)
                        store16(v[x], to + (y * SIDE + x) * plane + c);
                }
            }
        }
    }
}
#undef SIDE
#undef TRANSFORM
