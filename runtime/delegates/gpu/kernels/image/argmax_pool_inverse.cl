// Values written to the places in their windows that indices name, and zeros elsewhere: an output pixel belongs to one window
// at most. A unit is 16 channels of an output pixel.
// Parameters: IN_H, IN_W, FILTER_H, FILTER_W, PAD_TOP, PAD_LEFT, CHANNELS, IN_STRIDE, INDEX_STRIDE, OUT_STRIDE, and as
// divisors UNIT_BLOCKS, OUT_PIXELS (of an image), OUT_W, STRIDE_H, STRIDE_W.
static void FUNC(const int t, const int nt, __global const float *restrict in, __global const float *restrict indices,
    __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int p = QUOTIENT(u, UNIT_BLOCKS), c = (u - p * UNIT_BLOCKS) * 16;
        const int n = QUOTIENT(p, OUT_PIXELS), pixel = p - n * OUT_PIXELS, oy = QUOTIENT(pixel, OUT_W);
        const int y = oy + PAD_TOP, x = pixel - oy * OUT_W + PAD_LEFT;
        const int iy = QUOTIENT(y, STRIDE_H), ix = QUOTIENT(x, STRIDE_W);
        const int fy = y - iy * STRIDE_H, fx = x - ix * STRIDE_W;
        float16 value = (float16)0.0f;
        if (iy < IN_H && ix < IN_W && fy < FILTER_H && fx < FILTER_W) {
            const int source = (n * IN_H + iy) * IN_W + ix;
            const float16 place = trunc(load16(indices + source * INDEX_STRIDE + c));
            const int16 is_here = place == (float16)(float)(fy * FILTER_W + fx);
            value = select(value, load16(in + source * IN_STRIDE + c), is_here);
        }
        store16(mask16(value, c, CHANNELS), out + p * OUT_STRIDE + c);
    }
}
