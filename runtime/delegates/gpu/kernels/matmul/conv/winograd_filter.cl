// Winograd's convolution, in front of its second phase where weights are narrow: U = G g G' for each filter g. In memory
// they stay as the file has them; transformed they would take four to sixteen times as much. A unit is ROWS input
// channels of one panel.
// weights: panels of the type WEIGHT, 9 * K rows, tap by tap; out: [SIDE * SIDE][PANELS][K][TILE_N], SIDE = TILE + 2.
// Defines: TILE (2 or 4), TILE_N, ROWS, WEIGHT.
// TRANSFORM is one side of the product: applied to columns, then to rows. A factor other than a power of two is applied
// last and alone, so that the results are the same with and without fused additions, and those of `transformed` of
// winograd.py.
#define SIDE (TILE + 2)
#define CHUNKS ((K + ROWS - 1) / ROWS)
#if TILE == 2
#define TRANSFORM(g, u) \
    { \
        const float16 outer = g[0] + g[2]; \
        u[0] = g[0]; \
        u[1] = (outer + g[1]) * 0.5f; \
        u[2] = (outer - g[1]) * 0.5f; \
        u[3] = g[2]; \
    }
#else
#define TRANSFORM(g, u) \
    { \
        const float16 outer = g[0] + g[2], far = g[0] + 4.0f * g[2]; \
        u[0] = g[0] * 0.25f; \
        u[1] = (outer + g[1]) * (-1.0f / 6.0f); \
        u[2] = (outer - g[1]) * (-1.0f / 6.0f); \
        u[3] = (far + 2.0f * g[1]) * (1.0f / 24.0f); \
        u[4] = (far - 2.0f * g[1]) * (1.0f / 24.0f); \
        u[5] = g[2]; \
    }
#endif
static void FUNC(const int t, const int nt, __global const uchar *restrict weights, __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int panel = u / CHUNKS, first = u % CHUNKS * ROWS, last = min(first + ROWS, K);
        __global const float *head = PANEL_HEAD(weights, panel, 9 * K);
        __global const uchar *w = PANEL_ROWS(head);
        for (int k = first; k < last; k++)
            for (int j = 0; j < TILE_N; j += 16) {
                float16 columns[SIDE][3];
                #pragma unroll
                for (int x = 0; x < 3; x++) {
                    float16 g[3], v[SIDE];
                    #pragma unroll
                    for (int y = 0; y < 3; y++)
                        g[y] = WEIGHTS16(w, ((y * 3 + x) * K + k) * TILE_N + j, head, j);
                    TRANSFORM(g, v)
                    #pragma unroll
                    for (int y = 0; y < SIDE; y++)
                        columns[y][x] = v[y];
                }
                __global float *to = out + (panel * K + k) * TILE_N + j;
                #pragma unroll
                for (int y = 0; y < SIDE; y++) {
                    float16 v[SIDE];
                    TRANSFORM(columns[y], v)
                    #pragma unroll
                    for (int x = 0; x < SIDE; x++)
                        store16(v[x], to + (y * SIDE + x) * (PANELS * K * TILE_N));
                }
            }
    }
}
#undef SIDE
#undef CHUNKS
#undef TRANSFORM
