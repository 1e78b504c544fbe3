// Softmax over the channels of each pixel, or its logarithm, in work-groups: ROW_ITEMS work-items share a pixel, a group
// has as many pixels as its second dimension. Padded lanes neither win the maximum nor count in the sum.
// Defines: ROW_ITEMS, ROWS (the group's size), LOGARITHM. Local: partial [ROW_ITEMS * ROWS].
// Parameters: PIXELS, CHANNELS, PADDED (channels, padded), IN_STRIDE, OUT_STRIDE, BETA.
static void FUNC(INPUT(in), OUTPUT(out) PARAMETERS)
{
    const int lane = LOCAL_ID(0);
    const int item = LOCAL_ID(1) * ROW_ITEMS + lane;
    const int pixel = GROUP_ID(0) * ROWS + LOCAL_ID(1);
    // Every work-item must reach the barriers: those behind the last pixel compute it too, and store nothing.
    const int p = min(pixel, PIXELS - 1);
    float top = -INFINITY;
    for (int c = lane * 4; c < CHANNELS; c += ROW_ITEMS * 4) {
        top = fmax(top, max_of4(replaced4(LOAD4(in, p * IN_STRIDE + c), c, CHANNELS, -INFINITY)));
    }
    JOIN_ROW(top, fmax)
    float total = 0.0f;
    for (int c = lane * 4; c < CHANNELS; c += ROW_ITEMS * 4) {
        total += sum_of4(mask4(exp((LOAD4(in, p * IN_STRIDE + c) - top) * BETA), c, CHANNELS));
    }
    JOIN_ROW(total, ADDED)
#if LOGARITHM
    const float behind = log(total);
#else
    const float behind = 1.0f / total;
#endif
    if (pixel < PIXELS) {
        for (int c = lane * 4; c < PADDED; c += ROW_ITEMS * 4) {
            const float4 x = LOAD4(in, p * IN_STRIDE + c) - top;
#if LOGARITHM
            const float4 v = mask4(x - behind, c, CHANNELS);
#else
            const float4 v = mask4(exp(x * BETA) * behind, c, CHANNELS);
#endif
            STORE4(out, p * OUT_STRIDE + c, EPILOGUE(v, p, c));
        }
    }
}
