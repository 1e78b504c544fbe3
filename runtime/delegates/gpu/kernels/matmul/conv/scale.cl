// Multiplies row k of the packed weights of a pointwise convolution by scale[k]; copies the bias.
// weights, out: [PANELS][1 + K][TILE_N], the bias first. A unit is ROWS rows of one panel.
// Defines: K, TILE_N, PANELS, ROWS.
// Scaling the few weights replaces a pass over the whole map in front of the convolution (passes/fold_scale.py).
#define CHUNKS ((1 + K + ROWS - 1) / ROWS)
static void FUNC(const int t, const int nt, __global const float *restrict weights,
    __global const float *restrict scale, __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int first = u % CHUNKS * ROWS, last = min(first + ROWS, 1 + K);
        const int panel = u / CHUNKS * ((1 + K) * TILE_N);
        for (int row = first; row < last; row++) {
            const float factor = row == 0 ? 1.0f : scale[row - 1];
            for (int j = 0; j < TILE_N; j += 16)
                store16(load16(weights + panel + row * TILE_N + j) * factor, out + panel + row * TILE_N + j);
        }
    }
}
#undef CHUNKS
