// Depthwise convolution of int8 or uint8: exact sums, requantised as LiteRT's reference kernels do.
// A unit is one output row of one image. Taps outside of the image are left out: they stand for zero. Of a channel come
// MULTIPLIER neighbouring outputs.
// weights: [FILTER_H * FILTER_W][CHANNELS]; stage: biases, then multipliers, left and right shifts, or IN_FLOATS scales, each
// [CHANNELS].
// Defines: MULTIPLIER, IN_FLOATS, T (of input and weights), SIGN (-128 of uint8, whose outputs are levels less 128, else 0).
// Parameters: CHANNELS (of the output, padded), IN_H, IN_W, IN_STRIDE, IN_ZERO_POINT, WEIGHT_ZERO, OUT_H, OUT_W, OUT_STRIDE,
// FILTER_H, FILTER_W, STRIDE_H, STRIDE_W, DILATION_H, DILATION_W, PAD_TOP, PAD_LEFT, ZERO_POINT, LOW, HIGH (of the output).
static void FUNC(const int t, const int nt, __global const T *restrict in, __global const T *restrict weights,
    __global const int *restrict stage, __global char *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int n = u / OUT_H, y = u % OUT_H * STRIDE_H - PAD_TOP;
        for (int c = 0; c < CHANNELS; c += 16)
            for (int ox = 0; ox < OUT_W; ox++) {
                const int x = ox * STRIDE_W - PAD_LEFT;
                int16 sum = vload16(0, stage + c);
                for (int ky = 0; ky < FILTER_H; ky++)
                    for (int kx = 0; kx < FILTER_W; kx++) {
                        const int iy = y + ky * DILATION_H, ix = x + kx * DILATION_W;
                        if ((uint)iy >= (uint)IN_H || (uint)ix >= (uint)IN_W)
                            continue;
                        __global const T *pixel = in + ((long)(n * IN_H + iy) * IN_W + ix) * IN_STRIDE;
#if MULTIPLIER == 1
                        const int16 a = convert_int16(vload16(0, pixel + c));
#else
                        int levels[16];
                        for (int lane = 0; lane < 16; lane++)
                            levels[lane] = pixel[(c + lane) / MULTIPLIER];
                        const int16 a = vload16(0, levels);
#endif
                        const int16 w = convert_int16(vload16(0, weights + (ky * FILTER_W + kx) * CHANNELS + c));
                        sum += (a - IN_ZERO_POINT) * (w - WEIGHT_ZERO);
                    }
#if IN_FLOATS
                const int16 level = requantised_in_floats16(sum, stage + CHANNELS + c, ZERO_POINT);
#else
                const int16 level = requantised16(sum, stage + CHANNELS + c, CHANNELS) + ZERO_POINT;
#endif
                STORE16(char, convert_char16(clamp(level, LOW, HIGH) ^ SIGN), out + ((long)u * OUT_W + ox) * OUT_STRIDE + c);
            }
    }
}
