// Multiplies row k of the packed weights of a pointwise convolution by scale[k]; copies the bias.
// weights: panels of the type WEIGHT; out: panels of floats, [PANELS][1 + K][TILE_N]. A unit is ROWS rows of one panel.
// Defines: TILE_N, ROWS, WEIGHT. Parameters: K.
// Scaling the few weights replaces a pass over the whole map in front of the convolution (passes/fold_scale.py).
#define CHUNKS ((1 + K + ROWS - 1) / ROWS)
static void FUNC(const int t, const int nt, __global const uchar *restrict weights,
    __global const float *restrict scale, __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int first = u % CHUNKS * ROWS, last = min(first + ROWS, 1 + K);
        __global const float *head = PANEL_HEAD(weights, u / CHUNKS, K);
        __global const uchar *w = PANEL_ROWS(head);
        __global float *to = out + u / CHUNKS * ((1 + K) * TILE_N);
        for (int row = first; row < last; row++)
            for (int j = 0; j < TILE_N; j += 16)
                if (row == 0)
                    store16(load16(head + j), to + j);
                else
                    store16(WEIGHTS16(w, (row - 1) * TILE_N + j, head, j) * scale[row - 1], to + row * TILE_N + j);
    }
}
#undef CHUNKS
