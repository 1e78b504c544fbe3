// Filters of low rank over time: the state, [batch][OUT_UNITS * RANK filters][MEMORY], moves on by one step, takes the newest
// feature of each filter, and each filter is applied to its history. A unit is one output unit of one batch row.
// Defines: ACTIVATE(x). Parameters: OUT_UNITS as a divisor, RANK, MEMORY, INPUTS, PADDED_INPUTS (the stride of the feature
// weights, whose rows are padded with zeros), IN_STRIDE, OUT_STRIDE, STATE_STRIDE, NEW_STATE_STRIDE, TIME_STRIDE,
// TAIL (lanes of the output to fill with zeros), STATE_TAIL.
static void FUNC(const int t, const int nt, __global const float *restrict x, __global const float *restrict state,
    __global const float *restrict feature, __global const float *restrict time, __global const float *restrict biases,
    __global float *restrict out, __global float *restrict new_state PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int b = QUOTIENT(u, OUT_UNITS), unit = u - b * OUT_UNITS;
        float total = biases[unit];
        for (int r = 0; r < RANK; r++) {
            const int filter = unit * RANK + r;
            float16 sums = (float16)0.0f;
            for (int k = 0; k < INPUTS; k += 16)
                sums += mask16(load16(x + b * IN_STRIDE + k), k, INPUTS) * load16(feature + filter * PADDED_INPUTS + k);
            __global const float *old = state + b * STATE_STRIDE + filter * MEMORY;
            __global float *fresh = new_state + b * NEW_STATE_STRIDE + filter * MEMORY;
            float seen = 0.0f;
            for (int i = 0; i < MEMORY; i++) {
                const float value = i + 1 < MEMORY ? old[i + 1] : sum_of16(sums);
                fresh[i] = value;
                seen += value * time[filter * TIME_STRIDE + i];
            }
            total += seen;
        }
        const float16 result = (float16)total;
        out[b * OUT_STRIDE + unit] = (ACTIVATE(result)).s0;
        if (unit == OUT_UNITS - 1) {
            for (int c = 0; c < TAIL; c++)
                out[b * OUT_STRIDE + OUT_UNITS + c] = 0.0f;
            for (int c = 0; c < STATE_TAIL; c++)
                new_state[b * NEW_STATE_STRIDE + OUT_UNITS * RANK * MEMORY + c] = 0.0f;
        }
    }
}
