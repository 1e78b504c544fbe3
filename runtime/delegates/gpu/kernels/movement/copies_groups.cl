// Copies between layouts as in copies.cl, of elements of 32 bits, in work-groups: a work-item takes every GLOBAL_SIZE-th element
// of the output's rows, padded ones included, so that neighbours read neighbouring elements of a run.
// Defines: VECTORS (1: rows are copied four elements at a time, and pixels outside are filled so), and as there SOURCE(p),
// RUN_SOURCE(r) and INSIDE(p).
// Parameters: TOTAL (elements or vectors of all rows), CHANNELS, OUT_STRIDE, BEFORE, LENGTH (elements between BEFORE and AFTER),
// FILL, STEP, those of the expressions, and as divisors ROW (elements or vectors of a row) and RUN.
static void FUNC(INPUT(in), OUTPUT(out) PARAMETERS)
{
    for (int i = GLOBAL_ID(0); i < TOTAL; i += GLOBAL_SIZE(0)) {
        const int p = QUOTIENT(i, ROW);
#if VECTORS
        const int c = (i - p * ROW) * 4;
        float4 v = SPLAT4(as_float(FILL));
        if (INSIDE(p)) {
            v = LOAD4(in, SOURCE(p) + c);
        }
        STORE4(out, p * OUT_STRIDE + c, mask4(v, c, CHANNELS));
#else
        const int c = i - p * ROW;
        const int k = c - BEFORE;
        float v = c < CHANNELS ? as_float(FILL) : 0.0f;
        if (INSIDE(p) && k >= 0 && k < LENGTH) {
            const int r = QUOTIENT(k, RUN);
            v = LOAD(in, SOURCE(p) + RUN_SOURCE(r) + (k - r * RUN) * STEP);
        }
        STORE(out, p * OUT_STRIDE + c, v);
#endif
    }
}
