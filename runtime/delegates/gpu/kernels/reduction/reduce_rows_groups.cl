// Reduction over the channels of REDUCED pixels in work-groups: ROW_ITEMS work-items share a result, as in
// reduce_rows.cl element o of the output in row-major order. Four results make a vector, so that a group has ROWS results,
// padded ones included; where there is one channel (SINGLE), a group has one result and stores zeros behind it.
// Defines: ROW_ITEMS, ROWS, SINGLE, START, COMBINE(a, b), RESULT(x) and the generated expressions.
// Local: partial [256], of float4; results [ROWS], of float.
// Parameters: REDUCED, CHANNELS, OUT_STRIDE, OUT_CHANNELS, those of RESULT and of the expressions, and as divisors QUADS
// (vectors of four channels of an input pixel) and PADDED (channels of the output, padded).
static void FUNC(INPUT(in), OUTPUT(out) PARAMETERS)
{
    const int lane = LOCAL_ID(0);
    const int row = LOCAL_ID(1);
    const int item = row * ROW_ITEMS + lane;
#if SINGLE
    const int p = GROUP_ID(0);
    const int first = 0;
#else
    const int p = QUOTIENT(GROUP_ID(0) * ROWS, PADDED);
    const int first = GROUP_ID(0) * ROWS - p * PADDED;
#endif
    const bool is_real = first + row < OUT_CHANNELS;
    float4 result = SPLAT4(START);
    if (is_real) {
        const int o = p * OUT_CHANNELS + first + row;
        const int from = KEPT(o);
        for (int i = lane; i < REDUCED * QUADS; i += ROW_ITEMS) {
            const int r = QUOTIENT(i, QUADS);
            const int c = (i - r * QUADS) * 4;
            const float4 v = replaced4(LOAD4(in, from + JOINED(r) + c), c, CHANNELS, START);
            result = COMBINE(result, v);
        }
    }
    partial[item] = result;
    JOIN_ITEMS(partial, item, lane, ROW_ITEMS, 1, COMBINE)
    if (lane == 0) {
        const float4 four = partial[item];
        const float two = COMBINE(four.x, four.y);
        const float rest = COMBINE(four.z, four.w);
        const float joined = COMBINE(two, rest);
        results[row] = is_real ? RESULT(joined) : 0.0f;
    }
    BARRIER();
#if SINGLE
    if (item < 4) {
        const float4 v = VEC4(item == 0 ? results[0] : 0.0f, 0.0f, 0.0f, 0.0f);
        const int c = item * 4;
        STORE4(out, p * OUT_STRIDE + c, EPILOGUE(v, p, c));
    }
#else
    if (item < ROWS / 4) {
        const float4 v =
            VEC4(results[item * 4], results[item * 4 + 1], results[item * 4 + 2], results[item * 4 + 3]);
        const int c = first + item * 4;
        STORE4(out, p * OUT_STRIDE + c, EPILOGUE(v, p, c));
    }
#endif
}
