// steps.cl in work-groups: a group has the 16 cells of a unit there, four vectors of four by 64 ranges of k, whose sums meet in
// local memory. Weights and biases lie as there.
// Defines: those of steps.cl, and GIVEN (1: x is what the inputs add to the sums, biases included, [batch row][gate][padded
// cells], and INPUTS is 0). Local: partial [GATES * 256], of float4. Parameters: those of steps.cl.
// A step may write the cell that it reads, and rows of the previous output lie beside the new one: such pointers are not
// `restrict`. A work-item reads of what the launch writes its own elements alone, before it writes them.
#define PADDED (UNIT_BLOCKS * 16)
static void FUNC(INPUT(x), __global const float *previous, INPUT(weights),
#if !GIVEN
    INPUT(biases),
#endif
    __global float *out
#if KEEPS
    , __global float *state
#endif
#if GATES > 1 && !SUMS_ONLY
    , __global const float *cell, __global float *new_cell
#endif
#if PEEPHOLES
    , INPUT(peepholes)
#endif
    PARAMETERS)
{
    const int quad = LOCAL_ID(0);
    const int lane = LOCAL_ID(1);
    const int item = lane * 4 + quad;
    const int b = QUOTIENT(GROUP_ID(0), UNIT_BLOCKS);
    const int block = GROUP_ID(0) - b * UNIT_BLOCKS;
    const int c = block * 16 + quad * 4;
    const int from = (X_FIRST + b * X_STEP) * X_STRIDE;
    const int before = (PREVIOUS_FIRST + b * PREVIOUS_STEP) * PREVIOUS_STRIDE;
    const int depth = INPUTS + OUTPUTS;
    float4 sums[GATES];
    #pragma unroll
    for (int g = 0; g < GATES; g++) {
        sums[g] = SPLAT4(0.0f);
    }
    for (int start = 0; start < depth; start += 64) {
        const int k = start + lane;
        if (k < depth) {
#if GIVEN
            const float v = LOAD(previous, before + k);
#else
            const float v = k < INPUTS ? LOAD(x, from + k) : LOAD(previous, before + k - INPUTS);
#endif
            #pragma unroll
            for (int g = 0; g < GATES; g++) {
                sums[g] += v * LOAD4(weights, ((block * depth + k) * GATES + g) * 16 + quad * 4);
            }
        }
    }
    #pragma unroll
    for (int g = 0; g < GATES; g++) {
        partial[g * 256 + item] = sums[g];
    }
    BARRIER();
    for (int step = 32; step > 0; step /= 2) {
        if (lane < step) {
            #pragma unroll
            for (int g = 0; g < GATES; g++) {
                partial[g * 256 + item] += partial[g * 256 + item + step * 4];
            }
        }
        BARRIER();
    }
    if (lane == 0) {
        #pragma unroll
        for (int g = 0; g < GATES; g++) {
#if GIVEN
            sums[g] = partial[g * 256 + item] + LOAD4(x, from + g * PADDED + c);
#else
            sums[g] = partial[g * 256 + item] + LOAD4(biases, (block * GATES + g) * 16 + quad * 4);
#endif
#if SUMS_ONLY
            STORE4(out, (b * GATES + g) * PADDED + c, sums[g]);
#endif
        }
#if !SUMS_ONLY
#if GATES == 1
        const float4 shaped = ACTIVATE(sums[0]);
        const float4 result = mask4(shaped, c, CELLS);
#else
        const float4 old = LOAD4(cell, b * CELL_STRIDE + c);
#if PEEPHOLES
#if GATES == 4
        sums[1] += old * LOAD4(peepholes, c);
#endif
        sums[GATES - 2] += old * LOAD4(peepholes, PADDED + c);
#endif
        const float4 forget = logistic4(sums[GATES - 2]);
#if GATES == 4
        const float4 given = logistic4(sums[1]);
#else
        const float4 given = 1.0f - forget;
#endif
        float4 fresh = old * forget + given * ACTIVATE(sums[0]);
        if (CELL_CLIP > 0.0f) {
            fresh = clamp4(fresh, -CELL_CLIP, CELL_CLIP);
        }
#if PEEPHOLES
        sums[GATES - 1] += fresh * LOAD4(peepholes, 2 * PADDED + c);
#endif
        STORE4(new_cell, b * NEW_CELL_STRIDE + c, mask4(fresh, c, CELLS));
        const float4 result = mask4(ACTIVATE(fresh) * logistic4(sums[GATES - 1]), c, CELLS);
#endif
        STORE4(out, (OUT_FIRST + b * OUT_STEP) * OUT_STRIDE + c, result);
#if KEEPS
        STORE4(state, b * STATE_STRIDE + c, result);
#endif
#endif
    }
}
#undef PADDED
