// Copies between layouts in which an output index decides where its element comes from, axis by axis (transpose, slice,
// pad, tile, ...). An output row, the channels of a pixel, is BEFORE elements of VALUE, then RUNS runs of RUN elements that
// lie STEP apart in the input, then AFTER elements of VALUE. TAIL zeros keep padded lanes finite.
// Defines: T, the type that moves an element, VALUE, an expression of FILL and FILL_HIGH, VECTORS (1: rows are copied as
// whole vectors), DENSE (1: STEP is 1), and three generated expressions: SOURCE(p), where pixel p begins in the input;
// RUN_SOURCE(r), how far behind that run r begins; INSIDE(p), 0 for a pixel that is VALUE in all channels.
// Parameters: PIXELS, CHANNELS, OUT_STRIDE, TAIL, BEFORE, AFTER, FILL, FILL_HIGH (of 8 bytes only), RUNS, RUN, STEP, LANES
// (of a row, padded ones included, where it is copied as vectors), and those of the expressions.
#ifndef COPIES_MIRRORED
// Source index of count i of an axis of `size` elements with a mirrored border: `skipped` is 1 where the edge itself is
// not repeated.
#define COPIES_MIRRORED
static inline int mirrored(int i, int before, int size, int skipped)
{
    const int j = i < before ? before - i - 1 + skipped : i - before;
    return j < size ? j : 2 * size - 1 - skipped - j;
}
#endif
static void FUNC(const int t, const int nt, __global const T *restrict in, __global T *restrict out PARAMETERS)
{
    const int first = (int)((long)PIXELS * FIRST_UNIT(t, nt) / UNITS);
    const int last = (int)((long)PIXELS * FIRST_UNIT(t + 1, nt) / UNITS);
    for (int p = first; p < last; p++) {
        __global T *restrict to = out + p * OUT_STRIDE;
        if (INSIDE(p)) {
            __global const T *from = in + SOURCE(p);
#if VECTORS
            for (int c = 0; c < LANES; c += 16)
                store16(load16(from + c), to + c);
            continue;
#else
            FILL_RUN(T, to, VALUE, BEFORE);
            for (int r = 0; r < RUNS; r++) {
#if DENSE
                COPY_RUN(T, to + BEFORE + r * RUN, from + RUN_SOURCE(r), RUN);
#else
                __global const T *run = from + RUN_SOURCE(r);
                #pragma unroll 8
                for (int c = 0; c < RUN; c++)
                    to[BEFORE + r * RUN + c] = run[c * STEP];
#endif
            }
            FILL_RUN(T, to + CHANNELS - AFTER, VALUE, AFTER);
#endif
        } else {
            FILL_RUN(T, to, VALUE, CHANNELS);
        }
        FILL_RUN(T, to + CHANNELS, 0, TAIL);
    }
}
