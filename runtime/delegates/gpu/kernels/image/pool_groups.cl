// Pooling: a work-item computes four channels of a pixel. The window is cut to the image instead of padded, and a maximum
// leaves NaN out, as in pool.cl.
// Defines: KIND (0: mean of the pixels inside the image, 1: maximum, 2: root of their mean square).
// Parameters: TOTAL (vectors of four results), IN_H, IN_W, IN_STRIDE, OUT_STRIDE, FILTER_H, FILTER_W, STRIDE_H, STRIDE_W,
// PAD_TOP, PAD_LEFT, and as divisors VECTORS (of a pixel), OUT_PIXELS, OUT_W.
static void FUNC(INPUT(in), OUTPUT(out) PARAMETERS)
{
    FOR_EACH_VECTOR {
        PLACE_OF_VECTOR(p, c);
        PLACE_OF_PIXEL(p, image, oy, ox);
        const int y = oy * STRIDE_H - PAD_TOP;
        const int x = ox * STRIDE_W - PAD_LEFT;
        const int y0 = max(y, 0);
        const int y1 = min(y + FILTER_H, IN_H);
        const int x0 = max(x, 0);
        const int x1 = min(x + FILTER_W, IN_W);
#if KIND == 1
        float4 v = SPLAT4(-FLT_MAX);
#else
        float4 v = SPLAT4(0.0f);
#endif
        for (int iy = y0; iy < y1; iy++) {
            for (int ix = x0; ix < x1; ix++) {
                const float4 one = LOAD4(in, ((image * IN_H + iy) * IN_W + ix) * IN_STRIDE + c);
#if KIND == 1
                v = max4(one, v);
#elif KIND == 2
                v = v + one * one;
#else
                v = v + one;
#endif
            }
        }
#if KIND != 1
        v = v * (1.0f / (float)max((y1 - y0) * (x1 - x0), 1));
#endif
#if KIND == 2
        v = sqrt(v);
#endif
        STORE4(out, p * OUT_STRIDE + c, EPILOGUE(v, p, c));
    }
}
