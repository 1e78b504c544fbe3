// svdf.cl in work-groups: ROW_ITEMS work-items share an output unit of a batch row, a group has ROWS of them.
// Defines: ROW_ITEMS, ROWS, ACTIVATE(x). Local: partial [ROW_ITEMS * ROWS], of float. Parameters: those of svdf.cl, and TOTAL
// (output units of all batch rows).
static void FUNC(INPUT(x), INPUT(state), INPUT(feature), INPUT(time), INPUT(biases), OUTPUT(out), OUTPUT(new_state) PARAMETERS)
{
    const int lane = LOCAL_ID(0);
    const int item = LOCAL_ID(1) * ROW_ITEMS + lane;
    const int wanted = GROUP_ID(0) * ROWS + LOCAL_ID(1);
    // Every work-item must reach the barriers: those behind the last unit compute it too, and store nothing.
    const int u = min(wanted, TOTAL - 1);
    const int b = QUOTIENT(u, OUT_UNITS);
    const int unit = u - b * OUT_UNITS;
    float seen = 0.0f;
    for (int r = 0; r < RANK; r++) {
        const int filter = unit * RANK + r;
        const int old = b * STATE_STRIDE + filter * MEMORY + 1;
        float newest = 0.0f;
        for (int start = 0; start < INPUTS; start += ROW_ITEMS * 4) {
            const int k = start + lane * 4;
            if (k < INPUTS) {
                newest += sum_of4(mask4(LOAD4(x, b * IN_STRIDE + k), k, INPUTS) * LOAD4(feature, filter * PADDED_INPUTS + k));
            }
        }
        JOIN_ROW(newest, ADDED)
        for (int start = 0; start < MEMORY; start += ROW_ITEMS) {
            const int i = start + lane;
            if (i < MEMORY) {
                const float value = i + 1 < MEMORY ? LOAD(state, old + i) : newest;
                seen += value * LOAD(time, filter * TIME_STRIDE + i);
                if (wanted < TOTAL) {
                    STORE(new_state, b * NEW_STATE_STRIDE + filter * MEMORY + i, value);
                }
            }
        }
    }
    JOIN_ROW(seen, ADDED)
    if (lane == 0 && wanted < TOTAL) {
        const float4 shaped = ACTIVATE(SPLAT4(LOAD(biases, unit) + seen));
        STORE(out, b * OUT_STRIDE + unit, shaped.x);
        if (unit == OUT_UNITS - 1) {
            for (int c = OUT_UNITS; c < OUT_UNITS + TAIL; c++) {
                STORE(out, b * OUT_STRIDE + c, 0.0f);
            }
            for (int c = 0; c < STATE_TAIL; c++) {
                STORE(new_state, b * NEW_STATE_STRIDE + OUT_UNITS * RANK * MEMORY + c, 0.0f);
            }
        }
    }
}
