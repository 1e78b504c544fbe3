// As svdf.cl, on integers: int8 in and out, an int16 state, sums rounded twice as LiteRT's reference kernel does.
// A unit is one output unit of one batch row. Parameters: those of svdf.cl, ZERO_IN, ZERO_OUT, and of both factors, behind the
// features and behind the filters: multiplier, left and right shift.
static void FUNC(const int t, const int nt, __global const char *restrict x, __global const short *restrict state,
    __global const char *restrict feature, __global const short *restrict time, __global const int *restrict biases,
    __global char *restrict out, __global short *restrict new_state PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int b = QUOTIENT(u, OUT_UNITS), unit = u - b * OUT_UNITS;
        int total = biases[unit];
        for (int r = 0; r < RANK; r++) {
            const int filter = unit * RANK + r;
            int sum = 0;
            for (int k = 0; k < INPUTS; k++)
                sum += (x[b * IN_STRIDE + k] - ZERO_IN) * feature[filter * PADDED_INPUTS + k];
            const int16 scaled = multiplied16((int16)sum, (int16)MULTIPLIER_IN, (int16)LEFT_IN, (int16)RIGHT_IN);
            __global const short *old = state + b * STATE_STRIDE + filter * MEMORY;
            __global short *fresh = new_state + b * NEW_STATE_STRIDE + filter * MEMORY;
            for (int i = 0; i < MEMORY; i++) {
                const short value = i + 1 < MEMORY ? old[i + 1] : (short)clamp(scaled.s0, -32768, 32767);
                fresh[i] = value;
                total += value * time[filter * TIME_STRIDE + i];
            }
        }
        const int16 level = multiplied16((int16)total, (int16)MULTIPLIER_OUT, (int16)LEFT_OUT, (int16)RIGHT_OUT);
        out[b * OUT_STRIDE + unit] = (char)clamp(level.s0 + ZERO_OUT, -128, 127);
        if (unit == OUT_UNITS - 1) {
            for (int c = 0; c < TAIL; c++)
                out[b * OUT_STRIDE + OUT_UNITS + c] = 0;
            for (int c = 0; c < STATE_TAIL; c++)
                new_state[b * NEW_STATE_STRIDE + OUT_UNITS * RANK * MEMORY + c] = 0;
        }
    }
}
