// Copies between layouts in work-groups: element i of the input in row-major order becomes element i of the output.
// A work-item takes every GLOBAL_SIZE-th element of the output's rows, of which each ends with zeros.
// Parameters: TOTAL (elements of all rows), ROW (elements of a row, as a divisor), OUT_CHANNELS (those that are copied),
// IN_CHANNELS with its reciprocal, IN_STRIDE, IN_CHANNEL_STRIDE, OUT_STRIDE, OUT_SHIFT, GROUP_STEP and the reciprocal of
// GROUP, as in reshape.cl.
static void FUNC(INPUT(in), OUTPUT(out) PARAMETERS)
{
    for (int i = GLOBAL_ID(0); i < TOTAL; i += GLOBAL_SIZE(0)) {
        const int p = QUOTIENT(i, ROW);
        const int c = i - p * ROW;
        float v = 0.0f;
        if (c < OUT_CHANNELS) {
            const int element = p * OUT_CHANNELS + c;
            const int pixel = QUOTIENT(element, IN_CHANNELS);
            v = LOAD(in, pixel * IN_STRIDE + (element - pixel * IN_CHANNELS) * IN_CHANNEL_STRIDE);
        }
        STORE(out, OUT_SHIFT + QUOTIENT(p, GROUP) * GROUP_STEP + p * OUT_STRIDE + c, v);
    }
}
