// One step of a recurrent cell: the sums of its gates, and what follows from them. A unit is 16 cells of one batch row.
// The gates stand in the order candidate, input, forget, output, three without the input's; one gate alone is a plain RNN.
// Their weights lie as [block of 16 cells][input, then previous output][gate][16], biases as [block][gate][16].
// The previous state may lie in the same buffer as the new one, so that pointers to states are not `restrict`.
// Defines: GATES, PEEPHOLES (1: three vectors of CELLS), SUMS_ONLY (1: out becomes the sums, [batch][gate][padded cells]),
// KEEPS (1: the output is the state too), ACTIVATE(x). Parameters: UNIT_BLOCKS as a divisor, CELLS, INPUTS, OUTPUTS, and for x,
// previous and out the pixel of batch row 0, that of the next row after it, and the stride; the other strides; CELL_CLIP.
#define PADDED (UNIT_BLOCKS * 16)
static void FUNC(const int t, const int nt, __global const float *restrict x, __global const float *previous,
    __global const float *restrict weights, __global const float *restrict biases, __global float *out
#if KEEPS
    , __global float *state
#endif
#if GATES > 1 && !SUMS_ONLY
    , __global const float *cell, __global float *new_cell
#endif
#if PEEPHOLES
    , __global const float *restrict peepholes
#endif
    PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int b = QUOTIENT(u, UNIT_BLOCKS), block = u - b * UNIT_BLOCKS, c = block * 16;
        __global const float *from = x + (X_FIRST + b * X_STEP) * X_STRIDE;
        __global const float *before = previous + (PREVIOUS_FIRST + b * PREVIOUS_STEP) * PREVIOUS_STRIDE;
        __global const float *w = weights + block * (INPUTS + OUTPUTS) * GATES * 16;
        float16 sums[GATES];
        for (int g = 0; g < GATES; g++)
            sums[g] = load16(biases + (block * GATES + g) * 16);
        for (int k = 0; k < INPUTS; k++, w += GATES * 16)
            for (int g = 0; g < GATES; g++)
                sums[g] += from[k] * load16(w + g * 16);
        for (int k = 0; k < OUTPUTS; k++, w += GATES * 16)
            for (int g = 0; g < GATES; g++)
                sums[g] += before[k] * load16(w + g * 16);
#if SUMS_ONLY
        for (int g = 0; g < GATES; g++)
            store16(sums[g], out + (b * GATES + g) * PADDED + c);
#else
#if GATES == 1
        const float16 result = mask16(ACTIVATE(sums[0]), c, CELLS);
#else
        const float16 old = load16(cell + b * CELL_STRIDE + c);
#if PEEPHOLES
        sums[1] += GATES == 4 ? old * load16(peepholes + c) : (float16)0.0f;
        sums[GATES - 2] += old * load16(peepholes + PADDED + c);
#endif
        const float16 forget = logistic16(sums[GATES - 2]);
        const float16 given = GATES == 4 ? logistic16(sums[1]) : 1.0f - forget;
        float16 fresh = old * forget + given * ACTIVATE(sums[0]);
        if (CELL_CLIP > 0.0f)
            fresh = clamp16(fresh, -CELL_CLIP, CELL_CLIP);
#if PEEPHOLES
        sums[GATES - 1] += fresh * load16(peepholes + 2 * PADDED + c);
#endif
        store16(mask16(fresh, c, CELLS), new_cell + b * NEW_CELL_STRIDE + c);
        const float16 result = mask16(ACTIVATE(fresh) * logistic16(sums[GATES - 1]), c, CELLS);
#endif
        store16(result, out + (OUT_FIRST + b * OUT_STEP) * OUT_STRIDE + c);
#if KEEPS
        store16(result, state + b * STATE_STRIDE + c);
#endif
#endif
    }
}
#undef PADDED
