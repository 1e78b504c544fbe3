// An image read between its pixels at the places to which a matrix takes the pixels of the crop; zero outside of it. Places
// are counted from the pixels' centres. A unit is one pixel of the crop. Parameters: IN_H, IN_W, CHANNELS, IN_STRIDE,
// MATRIX_STRIDE, OUT_STRIDE, and OUT_W as a divisor.
#define PLACE(row) ((row)[0] * x + (row)[1] * y + ((row)[3] + ((row)[0] * 0.5f + (row)[1] * 0.5f - 0.5f)))
#define PIXEL(x, y) load16(in + (min(y, IN_H - 1) * IN_W + min(x, IN_W - 1)) * IN_STRIDE + c)
static void FUNC(const int t, const int nt, __global const float *restrict in, __global const float *restrict matrix,
    __global float *restrict out PARAMETERS)
{
    for (int p = FIRST_UNIT(t, nt); p < FIRST_UNIT(t + 1, nt); p++) {
        const float x = (float)REMAINDER(p, OUT_W), y = (float)QUOTIENT(p, OUT_W);
        const float across = PLACE(matrix), down = PLACE(matrix + MATRIX_STRIDE);
        const bool is_inside = across >= 0.0f && down >= 0.0f && across <= (float)(IN_W - 1) && down <= (float)(IN_H - 1);
        const int left = is_inside ? (int)across : 0, top = is_inside ? (int)down : 0;
        const float dx = across - (float)left, dy = down - (float)top;
        for (int c = 0; c < CHANNELS; c += 16) {
            float16 v = (float16)0.0f;
            if (is_inside) {
                const float16 upper = (1.0f - dx) * PIXEL(left, top) + dx * PIXEL(left + 1, top);
                const float16 lower = (1.0f - dx) * PIXEL(left, top + 1) + dx * PIXEL(left + 1, top + 1);
                v = dy * lower + (1.0f - dy) * upper;
            }
            store16(mask16(v, c, CHANNELS), out + p * OUT_STRIDE + c);
        }
    }
}
#undef PLACE
#undef PIXEL
