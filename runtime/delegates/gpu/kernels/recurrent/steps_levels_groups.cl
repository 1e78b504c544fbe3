// steps_levels.cl in work-groups of OpenCL alone: a group has the 16 results of a unit there, 16 work-items share each.
// Defines and parameters: those of steps_levels.cl. Local: partial [256], of int.
static void FUNC(__global const IN *restrict in
#if JOINED
    , __global const IN *restrict previous
#endif
    , __global const WEIGHT *restrict weights, __global const int *restrict stages
#if ADDS
    , __global const short *restrict added
#endif
    , __global OUT *out
#if KEEPS
    , __global OUT *state
#endif
    PARAMETERS)
{
    const int lane = LOCAL_ID(1), item = lane * 16 + LOCAL_ID(0);
    const int b = QUOTIENT(GROUP_ID(0), UNIT_BLOCKS), block = GROUP_ID(0) - b * UNIT_BLOCKS, c = block * 16 + LOCAL_ID(0);
    __global const IN *from = in + (IN_FIRST + b * IN_STEP) * IN_STRIDE;
#if JOINED
    __global const IN *before = previous + (PREVIOUS_FIRST + b * PREVIOUS_STEP) * PREVIOUS_STRIDE;
    __global const WEIGHT *w = weights + block * (INPUTS + OUTPUTS) * 16 + LOCAL_ID(0);
#else
    __global const WEIGHT *w = weights + block * INPUTS * 16 + LOCAL_ID(0);
#endif
    int sum = 0;
    for (int k = lane; k < INPUTS; k += 16)
        sum += from[k] * w[k * 16];
#if JOINED
    for (int k = lane; k < OUTPUTS; k += 16)
        sum += before[k] * w[(INPUTS + k) * 16];
#endif
    partial[item] = sum;
    JOIN_ITEMS(partial, item, lane, 16, 16, ADDED)
    if (lane == 0) {
        __global const int *stage = stages + block * 64 + LOCAL_ID(0);
        const int total = partial[item] + stage[0], right = stage[48];
#if TIES_UP
        const int scaled = (multiplied(total, stage[16], stage[32], 0) + ((1 << right) >> 1)) >> right;
#else
        const int scaled = multiplied(total, stage[16], stage[32], right);
#endif
        int level = clamp(scaled + ZERO, LOW, HIGH);
#if ADDS
        level = clamp(level + added[(ADDED_FIRST + b * ADDED_STEP) * ADDED_STRIDE + c], LOW, HIGH);
#endif
        out[(OUT_FIRST + b * OUT_STEP) * OUT_STRIDE + c] = (OUT)level;
#if KEEPS
        state[b * STATE_STRIDE + c] = (OUT)level;
#endif
    }
}
