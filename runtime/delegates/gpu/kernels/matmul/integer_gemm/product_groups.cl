// product.cl in work-groups: the same exact sums and stages, for GPUs. A group of 16 x 16 work-items has a tile of 16 * ROWS
// pixels by 64 outputs; of the ints of four channels it copies 16 of both sides to local memory at a time. A work-item has
// ROWS pixels, 16 apart, by four neighbouring outputs. The input's bytes lose their sign as there.
// weights: [FILTER_H * FILTER_W * DEPTH][CHANNELS] ints of four weights. stage: the offsets, then the rows of stage.py.
// Defines: ROWS, STAGE (its number in stage.py: DOUBLES, SHIFTS or FLOATS).
// Local: tile_left [16 * ROWS * 4], tile_right [16 * 16] of int4.
// Parameters: PIXELS, CHANNELS (of the output, padded), K (ints of a window), OUTSIDE (the zero point as four bytes without a
// sign), IN_H, IN_W, IN_STRIDE (ints), OUT_STRIDE, STRIDE_H, STRIDE_W, DILATION_H, DILATION_W, PAD_TOP, PAD_LEFT, ZERO_POINT,
// LOW, HIGH (of the output); as divisors DEPTH (ints of a pixel), FILTER_W, OUT_PIXELS, OUT_W.
#define DOUBLES 0
#define SHIFTS 1
#if STAGE == DOUBLES
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
// Joined with what stands behind it, a product would not be rounded.
#pragma OPENCL FP_CONTRACT OFF
// Levels of the outputs from n on.
static inline int4 JOIN(FUNC, levels)(int4 sum, __global const int *restrict stage, const int n, const int CHANNELS,
    const int ZERO_POINT)
{
#if STAGE == DOUBLES
    const double4 x = convert_double4(sum) * *(__global const double4 *)(stage + CHANNELS + 2 * n), whole = trunc(x);
    const double4 rounded = whole + trunc((x - whole) * 2.0);
    return convert_int4(clamp(rounded, (double4)-1e9, (double4)1e9)) + ZERO_POINT;
#elif STAGE == SHIFTS
    __global const int *multipliers = stage + CHANNELS + n;
    const int4 right = vload4(0, multipliers + 2 * CHANNELS);
    const long4 product = convert_long4(sum << vload4(0, multipliers + CHANNELS)) * convert_long4(vload4(0, multipliers));
    const int4 high = convert_int4((product + (1L << 30)) >> 31);
    const int4 shifts = right > (int4)0, nudge = shifts & ((int4)1 << ((right - 1) & 31));
    return ((high + nudge + ((high < (int4)0) & shifts)) >> right) + ZERO_POINT;
#else
    const float4 x = convert_float4(sum) * *(__global const float4 *)(stage + CHANNELS + n);
    return as_int4(clamp(x, (float4)-1e6f, (float4)1e6f) + 12582912.0f) - (0x4b400000 - ZERO_POINT);
#endif
}
static void FUNC(__global const int *restrict in, __global const int *restrict weights, __global const int *restrict stage,
    __global char *restrict out PARAMETERS)
{
    const int lx = LOCAL_ID(0), ly = LOCAL_ID(1), n = GROUP_ID(0) * 64 + lx * 4;
    __local int *left = (__local int *)tile_left;
    int y[ROWS], x[ROWS], line[ROWS];
    int4 sum[ROWS];
    #pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int m = min(GROUP_ID(1) * 16 * ROWS + ly + i * 16, PIXELS - 1);
        PLACE_OF_PIXEL(m, image, oy, ox);
        y[i] = oy * STRIDE_H - PAD_TOP;
        x[i] = ox * STRIDE_W - PAD_LEFT;
        line[i] = image * IN_H;
        sum[i] = n < CHANNELS ? *(__global const int4 *)(stage + n) : (int4)0;
    }
    for (int k0 = 0; k0 < K; k0 += 16) {
        const int k = k0 + lx, tap = QUOTIENT(k, DEPTH), ky = QUOTIENT(tap, FILTER_W);
        #pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int from_y = y[i] + ky * DILATION_H, from_x = x[i] + (tap - ky * FILTER_W) * DILATION_W;
            const bool is_inside = k < K && from_y >= 0 && from_y < IN_H && from_x >= 0 && from_x < IN_W;
            const int place = ((line[i] + from_y) * IN_W + from_x) * IN_STRIDE + k - tap * DEPTH;
            left[(ly + i * 16) * 16 + lx] = is_inside ? in[place] ^ (int)0x80808080 : OUTSIDE;
        }
        const bool is_there = k0 + ly < K && n < CHANNELS;
        tile_right[ly * 16 + lx] = is_there ? *(__global const int4 *)(weights + (k0 + ly) * CHANNELS + n) : (int4)0;
        BARRIER();
        #pragma unroll
        for (int q = 0; q < 4; q++) {
            const int4 b0 = tile_right[q * 64 + lx], b1 = tile_right[q * 64 + 16 + lx];
            const int4 b2 = tile_right[q * 64 + 32 + lx], b3 = tile_right[q * 64 + 48 + lx];
            #pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const int4 a = tile_left[(ly + i * 16) * 4 + q];
                sum[i] = add_bytes4(add_bytes4(sum[i], a.x, b0), a.y, b1);
                sum[i] = add_bytes4(add_bytes4(sum[i], a.z, b2), a.w, b3);
            }
        }
        BARRIER();
    }
    #pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int m = GROUP_ID(1) * 16 * ROWS + ly + i * 16;
        if (m < PIXELS && n < CHANNELS) {
            const int4 level = JOIN(FUNC, levels)(sum[i], stage, n, CHANNELS, ZERO_POINT);
            vstore4(convert_char4(clamp(level, LOW, HIGH)), 0, out + m * OUT_STRIDE + n);
        }
    }
}
#undef DOUBLES
#undef SHIFTS
