// An image read at positions between its pixels: the weighted mean of the four pixels around, of which those outside are
// zero. A unit is one output pixel. Parameters: IN_H, IN_W, CHANNELS, IN_STRIDE, POSITION_STRIDE, OUT_STRIDE, and IN_PIXELS
// (of an image) as a divisor.
#define PIXEL(x, y) ((x) >= 0 && (y) >= 0 && (x) < IN_W && (y) < IN_H \
    ? load16(image + ((y) * IN_W + (x)) * IN_STRIDE + c) : (float16)0.0f)
static void FUNC(const int t, const int nt, __global const float *restrict in, __global const float *restrict positions,
    __global float *restrict out PARAMETERS)
{
    for (int p = FIRST_UNIT(t, nt); p < FIRST_UNIT(t + 1, nt); p++) {
        __global const float *image = in + QUOTIENT(p, IN_PIXELS) * IN_PIXELS * IN_STRIDE;
        const float x = positions[p * POSITION_STRIDE], y = positions[p * POSITION_STRIDE + 1];
        const bool is_inside = x > -1.0f && y > -1.0f && x < (float)IN_W && y < (float)IN_H;
        const int left = is_inside ? (int)floor(x) : 0, top = is_inside ? (int)floor(y) : 0;
        const float dx = (float)(left + 1) - x, dy = (float)(top + 1) - y;
        for (int c = 0; c < CHANNELS; c += 16) {
            float16 v = (float16)0.0f;
            if (is_inside) {
                v = dx * dy * PIXEL(left, top);
                v += (1.0f - dx) * (1.0f - dy) * PIXEL(left + 1, top + 1);
                v += dx * (1.0f - dy) * PIXEL(left, top + 1);
                v += (1.0f - dx) * dy * PIXEL(left + 1, top);
            }
            store16(mask16(v, c, CHANNELS), out + p * OUT_STRIDE + c);
        }
    }
}
#undef PIXEL
