// Maximum under each window and its place there, row by row, plus a tenth; NaN is left out, of equal ones the first counts.
// A unit is 16 channels of an output pixel.
// Parameters: IN_H, IN_W, FILTER_H, FILTER_W, STRIDE_H, STRIDE_W, PAD_TOP, PAD_LEFT, CHANNELS, LOW, HIGH (bounds of the
// result), IN_STRIDE, OUT_STRIDE, PLACE_STRIDE, and as divisors UNIT_BLOCKS, OUT_PIXELS (of an image), OUT_W.
static void FUNC(const int t, const int nt, __global const float *restrict in, __global float *restrict out,
    __global float *restrict places PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int p = QUOTIENT(u, UNIT_BLOCKS), c = (u - p * UNIT_BLOCKS) * 16;
        const int n = QUOTIENT(p, OUT_PIXELS), pixel = p - n * OUT_PIXELS, oy = QUOTIENT(pixel, OUT_W);
        const int y = oy * STRIDE_H - PAD_TOP, x = (pixel - oy * OUT_W) * STRIDE_W - PAD_LEFT;
        float16 best = (float16)(-FLT_MAX), place = (float16)0.0f;
        for (int fy = max(0, -y); fy < min(FILTER_H, IN_H - y); fy++)
            for (int fx = max(0, -x); fx < min(FILTER_W, IN_W - x); fx++) {
                const float16 value = load16(in + ((n * IN_H + y + fy) * IN_W + x + fx) * IN_STRIDE + c);
                const int16 is_larger = value > best;
                best = select(best, value, is_larger);
                place = select(place, (float16)(float)(fy * FILTER_W + fx), is_larger);
            }
        store16(mask16(clamp16(best, LOW, HIGH), c, CHANNELS), out + p * OUT_STRIDE + c);
        store16(mask16(place + 0.1f, c, CHANNELS), places + p * PLACE_STRIDE + c);
    }
}
