// Pooling over float16 channels; a unit is one output row of one image.
// The window is cut to the image instead of padded: the border counts neither for the maximum nor for a mean.
// A maximum leaves NaN out, as LiteRT's does.
// Defines: KIND (0: mean of the pixels inside the image, 1: maximum, 2: root of their mean square).
// Parameters: IN_H, IN_W, OUT_H, OUT_W, FILTER_H, FILTER_W, STRIDE_H, STRIDE_W, PAD_TOP, PAD_LEFT, CHANNELS (padded),
// IN_STRIDE, OUT_STRIDE.
static void FUNC(const int t, const int nt, __global const float *restrict in, __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int n = u / OUT_H, y = u % OUT_H * STRIDE_H - PAD_TOP;
        const int y0 = max(y, 0), y1 = min(y + FILTER_H, IN_H);
        for (int ox = 0; ox < OUT_W; ox++) {
            const int x = ox * STRIDE_W - PAD_LEFT;
            const int x0 = max(x, 0), x1 = min(x + FILTER_W, IN_W);
            const int p = u * OUT_W + ox;
            for (int c = 0; c < CHANNELS; c += 16) {
#if KIND == 1
                float16 v = (float16)(-FLT_MAX);
#else
                float16 v = (float16)0.0f;
#endif
                for (int iy = y0; iy < y1; iy++)
                    for (int ix = x0; ix < x1; ix++) {
                        const float16 x16 = load16(in + ((n * IN_H + iy) * IN_W + ix) * IN_STRIDE + c);
#if KIND == 1
                        v = max16(x16, v);
#elif KIND == 2
                        v += x16 * x16;
#else
                        v += x16;
#endif
                    }
#if KIND != 1
                v *= 1.0f / (float)max((y1 - y0) * (x1 - x0), 1);
#endif
#if KIND == 2
                v = sqrt(v);
#endif
                store16(EPILOGUE(v, p, c), out + p * OUT_STRIDE + c);
            }
        }
    }
}
