// Bilinear resizing of levels as LiteRT's reference kernels do it; a unit is one output row. int8 in integers, with positions of
// 10 bits and weights of 20, ties away from zero; IN_FLOATS, uint8 in single precision, a half added before it is truncated.
// Defines: IN_FLOATS. Parameters: IN_H, IN_W, OUT_H, OUT_W, CHANNELS (padded), IN_STRIDE, OUT_STRIDE, and of positions, which are
// floats or integers: SCALE_H, SCALE_W, SHIFT_H, SHIFT_W (added in front of the product with a scale, of integers behind it).
#if IN_FLOATS
#define NUMBER float
#define ONE 1.0f
#define POSITION(i, scale, shift) (((i) + (shift)) * (scale) - (shift))
// Positions are greater than -1.
#define BELOW(x) (int)(x)
#define ABOVE(x) ((int)(x) + ((x) > (int)(x)))
#define LEVELS(pointer) CONVERT16(float16, LOAD_AS(uchar16, (__global const uchar *)(pointer)))
#define CORNER(pointer, by_row, by_column) (LEVELS(pointer) * (by_row) * (by_column))
#define ROUNDED(x) CONVERT16(int16, (x) + 0.5f)
#else
#define NUMBER int
#define ONE 1024
#define POSITION(i, scale, shift) ((i) * (scale) + (shift))
#define BELOW(x) max((x) / ONE, 0)
#define ABOVE(x) (((x) + ONE - 1) / ONE)
#define CORNER(pointer, by_row, by_column) (CONVERT16(int16, LOAD_AS(char16, pointer)) * ((by_row) * (by_column)))
#define ROUNDED(x) (((x) + ((x) < (int16)0) + (1 << 19)) >> 20)
#endif
static void FUNC(const int t, const int nt, __global const char *restrict in, __global char *restrict out PARAMETERS)
{
    // Products and sums have a rounding each.
    #pragma OPENCL FP_CONTRACT OFF
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const NUMBER y = POSITION(u % OUT_H, SCALE_H, SHIFT_H);
        const NUMBER down = y - ONE * BELOW(y), up = ONE - down;
        __global const char *image = in + (long)(u / OUT_H) * IN_H * IN_W * IN_STRIDE;
        __global const char *top = image + min(BELOW(y), IN_H - 1) * (IN_W * IN_STRIDE);
        __global const char *bottom = image + min(ABOVE(y), IN_H - 1) * (IN_W * IN_STRIDE);
        for (int ox = 0; ox < OUT_W; ox++) {
            const NUMBER x = POSITION(ox, SCALE_W, SHIFT_W);
            const NUMBER across = x - ONE * BELOW(x), back = ONE - across;
            const int left = min(BELOW(x), IN_W - 1) * IN_STRIDE, right = min(ABOVE(x), IN_W - 1) * IN_STRIDE;
            __global char *to = out + ((long)u * OUT_W + ox) * OUT_STRIDE;
            for (int c = 0; c < CHANNELS; c += 16)
                STORE16(char, CONVERT16(char16, ROUNDED(CORNER(top + left + c, up, back) + CORNER(bottom + left + c, down, back)
                    + CORNER(top + right + c, up, across) + CORNER(bottom + right + c, down, across))), to + c);
        }
    }
}
#undef NUMBER
#undef ONE
#undef POSITION
#undef BELOW
#undef ABOVE
#undef LEVELS
#undef CORNER
#undef ROUNDED
