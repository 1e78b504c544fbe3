// Levels of float rows, one scale for each row, as LiteRT's kernels of quantised weights make them in every run. A row is LINES
// runs of LENGTH elements, LINE_STRIDE apart in the input, of which LINE_BYTES bytes become; its elements stand IN_STEP apart.
// PHASE 0 does all of a row; of long rows PHASE 1 finds the extremes of every chunk of lines, and PHASE 2 goes on from them.
// levels: a byte for each element, 128 more than the level, so that it has no sign. scales: for each row the scale, and the zero
// point plus 128 as an int. border: BORDER bytes for each row, the real number 0.
// Defines: PHASE, ASYMMETRIC (256 levels around a zero point; else 255 about 0).
// Parameters: LINES, LENGTH, LINE_STRIDE, IN_STEP, ROW_STRIDE, LINE_BYTES, ROW_BYTES, BORDER, CHUNKS. A unit is a chunk of a row.
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

#ifndef QUANTIZED_ROWS
#define QUANTIZED_ROWS
static inline float2 extremes_of_line(__global const float *x, const int length, const int step)
{
    float low = 0.0f, high = 0.0f;
    int k = 0;
    if (step == 1 && length >= 16) {
        float16 lows = (float16)0.0f, highs = (float16)0.0f;
        // The last vector overlaps its neighbour, which changes no extreme.
        for (; k < length; k += 16) {
            const float16 v = load16(x + min(k, length - 16));
            lows = v < lows ? v : lows;
            highs = v > highs ? v : highs;
        }
        const float8 low8 = min(lows.lo, lows.hi), high8 = max(highs.lo, highs.hi);
        const float4 low4 = min(low8.lo, low8.hi), high4 = max(high8.lo, high8.hi);
        low = min(min(low4.s0, low4.s1), min(low4.s2, low4.s3));
        high = max(max(high4.s0, high4.s1), max(high4.s2, high4.s3));
    }
    for (; k < length; k++) {
        low = min(low, x[k * step]);
        high = max(high, x[k * step]);
    }
    return (float2)(low, high);
}
// Ties go away from zero. The constant is the largest float below one half.
static inline float16 level16(float16 x, float16 lowest)
{
    const float16 half_of_sign = as_float16((as_int16(x) & (int)0x80000000) | as_int(0.49999997f));
    return clamp(trunc(x + half_of_sign), lowest, (float16)127.0f);
}
#endif

static void FUNC(const int t, const int nt, __global const float *restrict in,
#if PHASE > 0
    __global float *restrict extremes
#endif
#if PHASE == 2
    ,
#endif
#if PHASE != 1
    __global uchar *restrict levels, __global float *restrict scales, __global uchar *restrict border
#endif
    PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int row = u / CHUNKS, chunk = u - row * CHUNKS;
        const int first = (int)((long)LINES * chunk / CHUNKS), last = (int)((long)LINES * (chunk + 1) / CHUNKS);
        __global const float *from = in + (long)row * ROW_STRIDE;
        float2 ends = (float2)(0.0f, 0.0f);
#if PHASE == 2
        for (int i = 0; i < CHUNKS; i++) {
            ends.x = min(ends.x, extremes[2 * (row * CHUNKS + i)]);
            ends.y = max(ends.y, extremes[2 * (row * CHUNKS + i) + 1]);
        }
#else
        for (int line = first; line < last; line++) {
            const float2 found = extremes_of_line(from + (long)line * LINE_STRIDE, LENGTH, IN_STEP);
            ends = (float2)(min(ends.x, found.x), max(ends.y, found.y));
        }
#endif
#if PHASE == 1
        extremes[2 * u] = ends.x;
        extremes[2 * u + 1] = ends.y;
#else
#if ASYMMETRIC
        // The zero point comes from the end of less error and is a level, so that 0 is exact.
        const double scale = ends.x == ends.y ? 1.0 : ((double)ends.y - ends.x) / 255.0;
        const double below = ends.x / scale, above = ends.y / scale;
        const double zero = round(128.0 + fabs(below) < 127.0 + fabs(above) ? -128.0 - below : 127.0 - above);
        const int zero_point = ends.x == ends.y ? 0 : (int)clamp(zero, -128.0, 127.0);
        const float inverse = 1.0f / (float)scale, lowest = -128.0f;
#else
        const float most = max(-ends.x, ends.y), largest = most == 0.0f ? 127.0f : most;
        const float scale = largest / 127.0f, inverse = 127.0f / largest, lowest = -127.0f;
        const int zero_point = 0;
#endif
        if (chunk == 0) {
            scales[2 * row] = (float)scale;
            scales[2 * row + 1] = as_float(zero_point + 128);
            for (int i = 0; i < BORDER; i++)
                border[row * BORDER + i] = (uchar)(zero_point + 128);
        }
        for (int line = first; line < last; line++) {
            __global const float *x = from + (long)line * LINE_STRIDE;
            __global uchar *to = levels + (long)row * ROW_BYTES + (long)line * LINE_BYTES;
            int k = 0;
            if (IN_STEP == 1 && LENGTH >= 16)
                for (; k < LENGTH; k += 16) {
                    const int at = min(k, LENGTH - 16);
                    const float16 level = level16(load16(x + at) * inverse + (float)zero_point, (float16)lowest);
                    STORE16(uchar, CONVERT16(uchar16, CONVERT16(int16, level) + 128), to + at);
                }
            for (; k < LENGTH; k++)
                to[k] = (uchar)((int)level16((float16)(x[k * IN_STEP] * inverse + (float)zero_point), (float16)lowest).s0 + 128);
        }
#endif
    }
}
