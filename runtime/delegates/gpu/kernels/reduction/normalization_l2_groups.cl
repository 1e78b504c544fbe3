// x / max(sqrt(sum of squares), 1e-6) over the channels of each pixel, in work-groups: ROW_ITEMS work-items share a pixel.
// Defines: ROW_ITEMS, ROWS. Local: partial [256], of float. Parameters: PIXELS, CHANNELS, PADDED, IN_STRIDE, OUT_STRIDE.
static void FUNC(INPUT(in), OUTPUT(out) PARAMETERS)
{
    const int lane = LOCAL_ID(0);
    const int item = LOCAL_ID(1) * ROW_ITEMS + lane;
    const int pixel = GROUP_ID(0) * ROWS + LOCAL_ID(1);
    // Every work-item must reach the barriers: those behind the last pixel compute it too, and store nothing.
    const int p = min(pixel, PIXELS - 1);
    float total = 0.0f;
    for (int c = lane * 4; c < CHANNELS; c += ROW_ITEMS * 4) {
        total += sum_of4(square4(mask4(LOAD4(in, p * IN_STRIDE + c), c, CHANNELS)));
    }
    JOIN_ROW(total, ADDED)
    const float norm = sqrt(total);
    const float divisor = norm < 1e-6f ? 1e-6f : norm;
    if (pixel < PIXELS) {
        for (int c = lane * 4; c < PADDED; c += ROW_ITEMS * 4) {
            const float4 v = mask4(LOAD4(in, p * IN_STRIDE + c) / divisor, c, CHANNELS);
            STORE4(out, p * OUT_STRIDE + c, EPILOGUE(v, p, c));
        }
    }
}
