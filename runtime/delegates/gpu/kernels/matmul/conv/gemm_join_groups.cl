// Adds up what the parts of a split product have left in scratch memory, [SPLITS][M][CHANNELS], and the bias. LANES work-items
// share a vector of four results, each with every LANES-th part; their sums meet in local memory.
// Defines: LANES. Local: partial [256], of float4.
// Parameters: TOTAL (vectors), M, N, CHANNELS (N, padded), SPLITS, OUT_STRIDE, and as a divisor VECTORS (of a row).
#define WIDTH (256 / LANES)
static void FUNC(INPUT(parts), INPUT(right), OUTPUT(out) PARAMETERS)
{
    const int lane = LOCAL_ID(1);
    const int item = lane * WIDTH + LOCAL_ID(0);
    const int i = GROUP_ID(0) * WIDTH + LOCAL_ID(0);
    const int p = QUOTIENT(i, VECTORS);
    const int c = (i - p * VECTORS) * 4;
    float4 sum = SPLAT4(0.0f);
    if (i < TOTAL) {
        for (int part = lane; part < SPLITS; part += LANES) {
            sum += LOAD4(parts, (part * M + p) * CHANNELS + c);
        }
    }
    partial[item] = sum;
    JOIN_ITEMS(partial, item, lane, LANES, WIDTH, ADDED)
    if (lane == 0 && i < TOTAL) {
        const float4 v = mask4(partial[item] + LOAD4(right, c), c, N);
        STORE4(out, p * OUT_STRIDE + c, EPILOGUE(v, p, c));
    }
}
#undef WIDTH
