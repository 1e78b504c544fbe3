// Depthwise convolution of int8 or uint8 with one output for each input channel: exact sums, requantised as LiteRT's reference
// kernels do. A unit is one output row of one image, taken in tiles of TILE pixels, of which the last overlaps its
// neighbour. Two neighbouring input pixels are one int of two shorts for each channel; an instruction, or the same in plain
// integers, adds the products of two taps. Where a window begins at the second pixel of a pair, weights shifted by one
// stand for it, with a zero in front. Pixels outside of the image are read from `border`, zero points.
// weights: [CHANNELS / 16][FILTER_H][those of windows that begin with a pair, then with STRIDE_W 1 the others][16] ints.
// stage: offsets, then by STAGE (its number in stage.py) the rows there, [CHANNELS].
// Defines: TILE, FILTER_H, FILTER_W, STRIDE_W (1 or 2), INSTRUCTION, STAGE, SIGN (-128 of uint8, whose outputs are levels less
// 128, else 0).
// Parameters: CHANNELS (padded), IN_H, IN_W, IN_STRIDE, OUT_H, OUT_W, OUT_STRIDE, STRIDE_H, DILATION_H, DILATION_W (1
// where STRIDE_W is not), PAD_TOP, PAD_LEFT, ZERO_POINT, LOW, HIGH (of the output).
#if SIGN
#define WIDENED16(pointer) CONVERT16(int16, LOAD_AS(uchar16, (__global const uchar *)(pointer)))
#else
#define WIDENED16(pointer) CONVERT16(int16, LOAD_AS(char16, pointer))
#endif
#if INSTRUCTION
// Channels whose sums of a tile are in registers together.
#define SPAN 16
#define INTS int16
#define PAIRS_OF(a, b) ((WIDENED16(a) & 0xffff) | WIDENED16(b) << 16)
#else
#define SPAN 8
#define INTS int8
#define PAIRS_OF(a, b) LOCAL_NAME(pairs)(a, b)
#endif
#define PAIRS (((TILE - 1) * STRIDE_W + FILTER_W + 1) / 2)
#define EVEN ((FILTER_W + 1) / 2)
#define ODD (STRIDE_W == 1 ? (FILTER_W + 2) / 2 : 0)

#if !INSTRUCTION
// Levels of eight channels of two pixels, by turns, as shorts.
static inline int8 LOCAL_NAME(pairs)(__global const char *pixel, __global const char *next)
{
#if SIGN
    const uchar8 a = LOAD_AS(uchar8, (__global const uchar *)pixel), b = LOAD_AS(uchar8, (__global const uchar *)next);
    const uchar16 both = (uchar16)(
#else
    const char8 a = LOAD_AS(char8, pixel), b = LOAD_AS(char8, next);
    const char16 both = (char16)(
#endif
        a.s0, b.s0, a.s1, b.s1, a.s2, b.s2, a.s3, b.s3, a.s4, b.s4, a.s5, b.s5, a.s6, b.s6, a.s7, b.s7);
    return as_int8(CONVERT16(short16, both));
}
#endif

static inline INTS LOCAL_NAME(dot)(INTS sum, INTS pixels, INTS weights)
{
#if INSTRUCTION
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(pixels), "v"(weights));
    return sum;
#else
    return add_pairs8(sum, pixels, weights);
#endif
}

static void FUNC(const int t, const int nt, __global const char *restrict in, __global const int *restrict weights,
    __global const int *restrict stage, __global const char *restrict border, __global char *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int n = u / OUT_H, y = u % OUT_H * STRIDE_H - PAD_TOP;
        // Pixels that lie DILATION_W apart share their inputs, so each group of them is a row of its own.
        for (int first = 0, group = 0; group < min(DILATION_W, OUT_W); first += TILE) {
            const int count = (OUT_W - group + DILATION_W - 1) / DILATION_W;
            const int ox = group + min(first, count - TILE) * DILATION_W, x = ox * STRIDE_W - PAD_LEFT;
            if (first + TILE >= count) {
                group++;
                first = -TILE;
            }
            const bool is_inside = x >= 0 && x + (2 * PAIRS - 1) * DILATION_W < IN_W;
            __global const char *pixel[FILTER_H][2 * PAIRS];
            for (int ky = 0; ky < FILTER_H; ky++) {
                const int iy = y + ky * DILATION_H;
                __global const char *row = in + ((long)(n * IN_H + iy) * IN_W + x) * IN_STRIDE;
                if ((uint)iy < (uint)IN_H && is_inside) {
                    #pragma unroll
                    for (int i = 0; i < 2 * PAIRS; i++)
                        pixel[ky][i] = row + i * DILATION_W * IN_STRIDE;
                    continue;
                }
                for (int i = 0; i < 2 * PAIRS; i++)
                    pixel[ky][i] = (uint)iy < (uint)IN_H && (uint)(x + i * DILATION_W) < (uint)IN_W
                        ? row + i * DILATION_W * IN_STRIDE
                        : border;
            }
            __global char *to = out + ((long)u * OUT_W + ox) * OUT_STRIDE;
            const int step = DILATION_W * OUT_STRIDE;
            __global const int *w = weights;
            for (int c = 0; c < CHANNELS; c += 16) {
                int16 sum[TILE];
                for (int part = 0; part < 16; part += SPAN) {
                    INTS found[TILE];
                    #pragma unroll
                    for (int i = 0; i < TILE; i++)
                        found[i] = *(__global const INTS *)(stage + c + part);
                    __global const int *taps = w + part;
                    #pragma unroll
                    for (int ky = 0; ky < FILTER_H; ky++) {
                        #pragma unroll
                        for (int pair = 0; pair < PAIRS; pair++) {
                            const INTS pixels =
                                PAIRS_OF(pixel[ky][2 * pair] + c + part, pixel[ky][2 * pair + 1] + c + part);
                            #pragma unroll
                            for (int i = 0; i < TILE; i++) {
                                const int tap = pair - i * STRIDE_W / 2, is_odd = i * STRIDE_W & 1;
                                if (tap >= 0 && tap < (is_odd ? ODD : EVEN))
                                    found[i] = LOCAL_NAME(dot)(
                                        found[i], pixels, *(__global const INTS *)(taps + 16 * (is_odd * EVEN + tap)));
                            }
                        }
                        taps += 16 * (EVEN + ODD);
                    }
                    #pragma unroll
                    for (int i = 0; i < TILE; i++)
                        ((INTS *)&sum[i])[part / SPAN] = found[i];
                }
                w += FILTER_H * 16 * (EVEN + ODD);
#if STAGE == 2
                const Factors factors = factors16(stage + CHANNELS + c, CHANNELS);
                #pragma unroll
                for (int i = 0; i < TILE; i++)
                    sum[i] = requantised_once16(as_uint16(sum[i]), factors);
#elif STAGE == 4
                #pragma unroll
                for (int i = 0; i < TILE; i++)
                    sum[i] = requantised_in_floats16(sum[i], stage + CHANNELS + c, ZERO_POINT);
#else
                #pragma unroll
                for (int i = 0; i < TILE; i++)
                    sum[i] = requantised16(sum[i], stage + CHANNELS + c, CHANNELS) + ZERO_POINT;
#endif
                #pragma unroll
                for (int i = 0; i + 4 <= TILE; i += 4)
                    store_levels4(sum[i], sum[i + 1], sum[i + 2], sum[i + 3], LOW, HIGH, SIGN, to + i * step + c,
                        to + (i + 1) * step + c, to + (i + 2) * step + c, to + (i + 3) * step + c);
                #pragma unroll
                for (int i = TILE & ~3; i < TILE; i++)
                    STORE16(char, convert_char16(clamp(sum[i], LOW, HIGH) ^ SIGN), to + i * step + c);
            }
        }
    }
}
#undef WIDENED16
#undef PAIRS
#undef PAIRS_OF
#undef SPAN
#undef INTS
#undef EVEN
#undef ODD
