// Bilinear and nearest-neighbour resizing: a work-item computes four channels of a pixel. The formulas are those of resize.cl.
// Defines: ALIGN_CORNERS, HALF_PIXEL, BILINEAR. Parameters: TOTAL (vectors of four results), IN_H, IN_W, IN_STRIDE, OUT_STRIDE,
// SCALE_H, SCALE_W, and as divisors VECTORS (of a pixel), OUT_PIXELS, OUT_W.
#if BILINEAR && HALF_PIXEL
#define POSITION(i, scale) (((float)(i) + 0.5f) * (scale) - 0.5f)
#elif BILINEAR
#define POSITION(i, scale) ((float)(i) * (scale))
#elif HALF_PIXEL
#define POSITION(i, scale) (((float)(i) + 0.5f) * (scale))
#else
#define POSITION(i, scale) ((float)(i) * (scale))
#endif
static void FUNC(INPUT(in), OUTPUT(out) PARAMETERS)
{
    FOR_EACH_VECTOR {
        PLACE_OF_VECTOR(p, c);
        PLACE_OF_PIXEL(p, image, oy, ox);
        const float y = POSITION(oy, SCALE_H);
        const float x = POSITION(ox, SCALE_W);
#if BILINEAR
        const int y0 = min(max((int)floor(y), 0), IN_H - 1);
        const int y1 = min((int)ceil(y), IN_H - 1);
        const int x0 = min(max((int)floor(x), 0), IN_W - 1);
        const int x1 = min((int)ceil(x), IN_W - 1);
        const float fy = y - (float)y0;
        const float fx = x - (float)x0;
        const int row0 = (image * IN_H + y0) * IN_W;
        const int row1 = (image * IN_H + y1) * IN_W;
        const float4 v = LOAD4(in, (row0 + x0) * IN_STRIDE + c) * ((1.0f - fy) * (1.0f - fx))
            + LOAD4(in, (row1 + x0) * IN_STRIDE + c) * (fy * (1.0f - fx))
            + LOAD4(in, (row0 + x1) * IN_STRIDE + c) * ((1.0f - fy) * fx)
            + LOAD4(in, (row1 + x1) * IN_STRIDE + c) * (fy * fx);
#else
        // Corners are aligned by rounding, ties upwards, else the position is rounded down.
#if ALIGN_CORNERS
        const float ny = trunc(y) + trunc((y - trunc(y)) * 2.0f);
        const float nx = trunc(x) + trunc((x - trunc(x)) * 2.0f);
#else
        const float ny = floor(y);
        const float nx = floor(x);
#endif
        const int y0 = min(max((int)ny, 0), IN_H - 1);
        const int x0 = min(max((int)nx, 0), IN_W - 1);
        const float4 v = LOAD4(in, ((image * IN_H + y0) * IN_W + x0) * IN_STRIDE + c);
#endif
        STORE4(out, p * OUT_STRIDE + c, EPILOGUE(v, p, c));
    }
}
#undef POSITION
