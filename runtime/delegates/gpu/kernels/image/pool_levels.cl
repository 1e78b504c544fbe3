// Pooling of int8 or uint8: the largest level under the window, or the mean of the levels inside the image, ties away from zero.
// A unit is one output row of one image.
// Defines: KIND (0: mean, 1: maximum), T. Parameters: those of pool.cl, LOW and HIGH, the bounds of the output.
static void FUNC(const int t, const int nt, __global const T *restrict in, __global char *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int n = u / OUT_H, y = u % OUT_H * STRIDE_H - PAD_TOP;
        const int y0 = max(y, 0), y1 = min(y + FILTER_H, IN_H);
        for (int ox = 0; ox < OUT_W; ox++) {
            const int x = ox * STRIDE_W - PAD_LEFT;
            const int x0 = max(x, 0), x1 = min(x + FILTER_W, IN_W);
            const int count = max((y1 - y0) * (x1 - x0), 1);
            for (int c = 0; c < CHANNELS; c += 16) {
                int16 v = (int16)(KIND == 1 ? -128 : 0);
                for (int iy = y0; iy < y1; iy++)
                    for (int ix = x0; ix < x1; ix++) {
                        const int16 x16 = convert_int16(vload16(0, in + (long)((n * IN_H + iy) * IN_W + ix) * IN_STRIDE + c));
#if KIND == 1
                        v = max(v, x16);
#else
                        v += x16;
#endif
                    }
#if KIND != 1
                v = (v + (v > (int16)0 ? (int16)(count / 2) : (int16)(-(count / 2)))) / (int16)count;
#endif
                STORE16(char, convert_char16(clamp(v, LOW, HIGH)), out + ((long)u * OUT_W + ox) * OUT_STRIDE + c);
            }
        }
    }
}
