// svdf_levels.cl in work-groups of OpenCL alone, shared as in svdf_groups.cl.
// Defines: ROW_ITEMS, ROWS. Local: partial [ROW_ITEMS * ROWS], of int. Parameters: those of svdf_levels.cl, and TOTAL.
static void FUNC(__global const char *restrict x, __global const short *restrict state, __global const char *restrict feature,
    __global const short *restrict time, __global const int *restrict biases, __global char *restrict out,
    __global short *restrict new_state PARAMETERS)
{
    const int lane = LOCAL_ID(0), item = LOCAL_ID(1) * ROW_ITEMS + lane;
    const int wanted = GROUP_ID(0) * ROWS + LOCAL_ID(1);
    // Every work-item must reach the barriers: those behind the last unit compute it too, and store nothing.
    const int u = min(wanted, TOTAL - 1), b = QUOTIENT(u, OUT_UNITS), unit = u - b * OUT_UNITS;
    int total = 0;
    for (int r = 0; r < RANK; r++) {
        const int filter = unit * RANK + r;
        __global const short *old = state + b * STATE_STRIDE + filter * MEMORY;
        __global short *fresh = new_state + b * NEW_STATE_STRIDE + filter * MEMORY;
        int newest = 0;
        for (int start = 0; start < INPUTS; start += ROW_ITEMS) {
            const int k = start + lane;
            if (k < INPUTS)
                newest += (x[b * IN_STRIDE + k] - ZERO_IN) * feature[filter * PADDED_INPUTS + k];
        }
        JOIN_ROW(newest, ADDED)
        newest = clamp(multiplied(newest, MULTIPLIER_IN, LEFT_IN, RIGHT_IN), -32768, 32767);
        for (int start = 0; start < MEMORY; start += ROW_ITEMS) {
            const int i = start + lane;
            if (i < MEMORY) {
                const int value = i + 1 < MEMORY ? old[i + 1] : newest;
                total += value * time[filter * TIME_STRIDE + i];
                if (wanted < TOTAL)
                    fresh[i] = (short)value;
            }
        }
    }
    JOIN_ROW(total, ADDED)
    if (lane == 0 && wanted < TOTAL) {
        const int level = multiplied(total + biases[unit], MULTIPLIER_OUT, LEFT_OUT, RIGHT_OUT);
        out[b * OUT_STRIDE + unit] = (char)clamp(level + ZERO_OUT, -128, 127);
        if (unit == OUT_UNITS - 1) {
            for (int c = OUT_UNITS; c < OUT_UNITS + TAIL; c++)
                out[b * OUT_STRIDE + c] = 0;
            for (int c = 0; c < STATE_TAIL; c++)
                new_state[b * NEW_STATE_STRIDE + OUT_UNITS * RANK * MEMORY + c] = 0;
        }
    }
}
