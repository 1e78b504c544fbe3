// Copies between layouts in work-groups: element i of the input in row-major order becomes element i of the output.
// A work-item takes every GLOBAL_SIZE-th word of the output's rows, of which each ends with zeros.
// Defines: LANES, the elements of a word: 1, or 4 bytes.
// Parameters: TOTAL (words of all rows), ROW (words of a row, as a divisor), OUT_CHANNELS (elements that are copied),
// IN_CHANNELS with its reciprocal, IN_STRIDE, IN_CHANNEL_STRIDE, OUT_STRIDE, OUT_SHIFT, GROUP_STEP and the reciprocal of
// GROUP, as in reshape.cl.
static void FUNC(INPUT(in), OUTPUT(out) PARAMETERS)
{
    for (int i = GLOBAL_ID(0); i < TOTAL; i += GLOBAL_SIZE(0)) {
        const int p = QUOTIENT(i, ROW);
        const int c = (i - p * ROW) * LANES;
        uint word = 0u;
        for (int lane = 0; lane < LANES; lane++) {
            if (c + lane < OUT_CHANNELS) {
                const int element = p * OUT_CHANNELS + c + lane;
                const int pixel = QUOTIENT(element, IN_CHANNELS);
                const int from = pixel * IN_STRIDE + (element - pixel * IN_CHANNELS) * IN_CHANNEL_STRIDE;
#if LANES == 1
                word = LOAD_WORD(in, from);
#else
                word = word | (LOAD_BYTE(in, from) << (uint)(lane * 8));
#endif
            }
        }
        STORE_WORD(out, (OUT_SHIFT + QUOTIENT(p, GROUP) * GROUP_STEP + p * OUT_STRIDE + c) / LANES, word);
    }
}
