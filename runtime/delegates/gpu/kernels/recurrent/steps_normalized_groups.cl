// steps_normalized.cl in work-groups: 256 work-items have a batch row, and join means and variances in local memory.
// The sums are only read. Of what the launch writes, the cell, a work-item reads its own elements alone.
// Defines: those of steps_normalized.cl, and ROW_ITEMS (256). Local: partial [256], of float. Parameters: those of
// steps_normalized.cl.
#define PLACE(g, c) ((b * GATES + (g)) * PADDED + (c))
#if PEEPHOLES
// The candidate has no peephole, nor the input gate's row where that gate is missing.
#define PEEPHOLE(g, c) LOAD4(peepholes, ((g) + 3 - GATES) * PADDED + (c))
#define SEEN(g, c) ((g) < GATES - 1 ? LOAD4(cell, b * CELL_STRIDE + (c)) : LOAD4(new_cell, b * NEW_CELL_STRIDE + (c)))
#define SUM(g, c) ((g) == 0 ? LOAD4(sums, PLACE(g, c)) : LOAD4(sums, PLACE(g, c)) + SEEN(g, c) * PEEPHOLE(g, c))
#else
#define SUM(g, c) LOAD4(sums, PLACE(g, c))
#endif
#define NORMAL(g, c) \
    ((SUM(g, c) - mean[g]) * scale[g] * LOAD4(norms, (g) * PADDED + (c)) + LOAD4(biases, (g) * PADDED + (c)))
static void FUNC(INPUT(sums), INPUT(norms), INPUT(biases), __global float *out
#if KEEPS
    , __global float *state
#endif
    , __global const float *cell, __global float *new_cell
#if PEEPHOLES
    , INPUT(peepholes)
#endif
    PARAMETERS)
{
    const int lane = LOCAL_ID(0);
    const int item = lane;
    const int b = GROUP_ID(0);
    float mean[GATES];
    float scale[GATES];
    #pragma unroll
    for (int g = 0; g < GATES; g++) {
        float total = 0.0f;
        for (int c = lane * 4; c < CELLS; c += ROW_ITEMS * 4) {
            total += sum_of4(mask4(SUM(g, c), c, CELLS));
        }
        JOIN_ROW(total, ADDED)
        mean[g] = total / (float)CELLS;
        total = 0.0f;
        for (int c = lane * 4; c < CELLS; c += ROW_ITEMS * 4) {
            total += sum_of4(square4(mask4(SUM(g, c) - mean[g], c, CELLS)));
        }
        JOIN_ROW(total, ADDED)
        // The floor under the variance is LiteRT's, kNormalizationConstant.
        scale[g] = 1.0f / sqrt(total / (float)CELLS + 1e-8f);
        // The output's gate, the last, sees the new cell.
        if (g == GATES - 2) {
            for (int c = lane * 4; c < PADDED; c += ROW_ITEMS * 4) {
                const float4 forget = logistic4(NORMAL(GATES - 2, c));
#if GATES == 4
                const float4 given = logistic4(NORMAL(1, c));
#else
                const float4 given = 1.0f - forget;
#endif
                const float4 candidate = NORMAL(0, c);
                float4 fresh = LOAD4(cell, b * CELL_STRIDE + c) * forget + given * ACTIVATE(candidate);
                if (CELL_CLIP > 0.0f) {
                    fresh = clamp4(fresh, -CELL_CLIP, CELL_CLIP);
                }
                STORE4(new_cell, b * NEW_CELL_STRIDE + c, mask4(fresh, c, CELLS));
            }
        }
    }
    for (int c = lane * 4; c < PADDED; c += ROW_ITEMS * 4) {
        const float4 gate = logistic4(NORMAL(GATES - 1, c));
        const float4 fresh = LOAD4(new_cell, b * NEW_CELL_STRIDE + c);
        const float4 result = mask4(ACTIVATE(fresh) * gate, c, CELLS);
        STORE4(out, (OUT_FIRST + b * OUT_STEP) * OUT_STRIDE + c, result);
#if KEEPS
        STORE4(state, b * STATE_STRIDE + c, result);
#endif
    }
}
#undef PLACE
#undef PEEPHOLE
#undef SEEN
#undef SUM
#undef NORMAL
