// What follows from the sums of an LSTM's gates where each gate is normalised over its cells, before its bias. A unit is one
// batch row. The sums, [batch][gate][PADDED], are overwritten; norms and biases lie as [gate][PADDED], peepholes as in
// steps.cl, whose defines GATES, PEEPHOLES, KEEPS and ACTIVATE(x) these are.
// Parameters: CELLS, PADDED (CELLS rounded up to 16), OUT_FIRST, OUT_STEP, OUT_STRIDE, the strides of the states, CELL_CLIP.
#ifndef STEPS_NORMALIZE
#define STEPS_NORMALIZE
static void normalize_gate(__global float *sums, __global const float *norms, __global const float *biases, const int cells)
{
    float16 total = (float16)0.0f, squares = (float16)0.0f;
    for (int c = 0; c < cells; c += 16)
        total += mask16(load16(sums + c), c, cells);
    const float mean = sum_of16(total) / cells;
    for (int c = 0; c < cells; c += 16) {
        const float16 centred = mask16(load16(sums + c) - mean, c, cells);
        squares += centred * centred;
    }
    // The floor under the variance is LiteRT's, kNormalizationConstant.
    const float scale = 1.0f / sqrt(sum_of16(squares) / cells + 1e-8f);
    for (int c = 0; c < cells; c += 16)
        store16((load16(sums + c) - mean) * scale * load16(norms + c) + load16(biases + c), sums + c);
}
#endif
#define GATE(g) ((g) * PADDED)
static void FUNC(const int t, const int nt, __global float *restrict all_sums, __global const float *restrict norms,
    __global const float *restrict biases, __global float *out
#if KEEPS
    , __global float *state
#endif
    , __global const float *cell, __global float *new_cell
#if PEEPHOLES
    , __global const float *restrict peepholes
#endif
    PARAMETERS)
{
    for (int b = FIRST_UNIT(t, nt); b < FIRST_UNIT(t + 1, nt); b++) {
        __global float *sums = all_sums + b * GATE(GATES);
#if PEEPHOLES
        for (int c = 0; c < CELLS; c += 16) {
            const float16 old = load16(cell + b * CELL_STRIDE + c);
#if GATES == 4
            store16(load16(sums + GATE(1) + c) + old * load16(peepholes + c), sums + GATE(1) + c);
#endif
            const int forget = GATE(GATES - 2) + c;
            store16(load16(sums + forget) + old * load16(peepholes + PADDED + c), sums + forget);
        }
#endif
        for (int g = 0; g < GATES - 1; g++)
            normalize_gate(sums + GATE(g), norms + GATE(g), biases + GATE(g), CELLS);
        for (int c = 0; c < CELLS; c += 16) {
            const float16 old = load16(cell + b * CELL_STRIDE + c);
            const float16 forget = logistic16(load16(sums + GATE(GATES - 2) + c));
#if GATES == 4
            const float16 given = logistic16(load16(sums + GATE(1) + c));
#else
            const float16 given = 1.0f - forget;
#endif
            float16 fresh = old * forget + given * ACTIVATE(load16(sums + c));
            if (CELL_CLIP > 0.0f)
                fresh = clamp16(fresh, -CELL_CLIP, CELL_CLIP);
            fresh = mask16(fresh, c, CELLS);
            store16(fresh, new_cell + b * NEW_CELL_STRIDE + c);
#if PEEPHOLES
            const int output = GATE(GATES - 1) + c;
            store16(load16(sums + output) + fresh * load16(peepholes + 2 * PADDED + c), sums + output);
#endif
        }
        normalize_gate(sums + GATE(GATES - 1), norms + GATE(GATES - 1), biases + GATE(GATES - 1), CELLS);
        for (int c = 0; c < CELLS; c += 16) {
            const float16 gate = logistic16(load16(sums + GATE(GATES - 1) + c));
            const float16 result = mask16(ACTIVATE(load16(new_cell + b * NEW_CELL_STRIDE + c)) * gate, c, CELLS);
            store16(result, out + (OUT_FIRST + b * OUT_STEP) * OUT_STRIDE + c);
#if KEEPS
            store16(result, state + b * STATE_STRIDE + c);
#endif
        }
    }
}
#undef GATE
