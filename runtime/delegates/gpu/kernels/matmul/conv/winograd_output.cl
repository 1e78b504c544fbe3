// Winograd's convolution, third phase: TILE x TILE outputs A' m A of each tile, bias and epilogue. A unit is one row of
// tiles, whose pixels lie DILATION apart. in: [SIDE * SIDE][TILES][COLUMNS]; bias: [CHANNELS].
// Defines: TILE (2 or 4). Parameters: TILES, OUT_H, OUT_W, OUT_STRIDE, TILES_Y, TILES_X, DILATION, CHANNELS (padded), COLUMNS.
// TRANSFORM is one side of that product: applied to columns, then to rows. Outputs of the last tiles that lie outside
// of the map are dropped. The bias is added last, as the transform would multiply it.
#define SIDE (TILE + 2)
#if TILE == 2
#define TRANSFORM(m, v) \
    v[0] = m[0] + m[1] + m[2]; \
    v[1] = m[1] - m[2] - m[3];
#else
#define TRANSFORM(m, v) \
    { \
        const float16 sum = m[1] + m[2], difference = m[1] - m[2]; \
        const float16 far_sum = m[3] + m[4], far_difference = m[3] - m[4]; \
        v[0] = m[0] + sum + far_sum; \
        v[1] = difference + 2.0f * far_difference; \
        v[2] = sum + 4.0f * far_sum; \
        v[3] = difference + 8.0f * far_difference + m[5]; \
    }
#endif
static void FUNC(const int t, const int nt, __global const float *restrict in, __global const float *restrict bias,
    __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int n = u / TILES_Y, ty = u % TILES_Y;
        const int oy = ty / DILATION * DILATION * TILE + ty % DILATION;
        for (int tile = 0; tile < TILES_X; tile++) {
            const int ox = tile / DILATION * DILATION * TILE + tile % DILATION;
            __global const float *from = in + (u * TILES_X + tile) * COLUMNS;
            for (int c = 0; c < CHANNELS; c += 16) {
                long plane = (long)TILES * COLUMNS;
                OPAQUE(plane);
                const float16 start = load16(bias + c);
                float16 columns[TILE * SIDE];
                #pragma unroll
                for (int x = 0; x < SIDE; x++) {
                    float16 m[SIDE], v[TILE];
                    #pragma unroll
                    for (int y = 0; y < SIDE; y++)
                        m[y] = load16(from + (y * SIDE + x) * plane + c);
                    TRANSFORM(m, v)
                    #pragma unroll
                    for (int y = 0; y < TILE; y++)
                        columns[y * SIDE + x] = v[y];
                }
                #pragma unroll
                for (int y = 0; y < TILE; y++) {
                    float16 v[TILE];
                    TRANSFORM((columns + y * SIDE), v)
                    #pragma unroll
                    for (int x = 0; x < TILE; x++) {
                        const int row = oy + y * DILATION, column = ox + x * DILATION;
                        const int p = (n * OUT_H + row) * OUT_W + column;
                        const float16 value = v[x] + start;
                        if (row < OUT_H && column < OUT_W)
                            store16(EPILOGUE(value, p, c), out + p * OUT_STRIDE + c);
                    }
                }
            }
        }
    }
}
#undef SIDE
#undef TRANSFORM
