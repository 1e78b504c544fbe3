// Vectors that are `on` at an index and `off` elsewhere: the indices are [outer][INNER], the output [outer][DEPTH][INNER].
// An index outside of the depth sets nothing. A unit is one output pixel.
// Defines: T, the type that moves an element, INDEX, that of an index. Parameters: CHANNELS, OUT_STRIDE, TAIL (lanes to fill
// with zeros), INDEX_STRIDE, INDEX_CHANNEL_STRIDE, and as divisors DEPTH_INNER (DEPTH * INNER), INNER, INDEX_CHANNELS.
static void FUNC(const int t, const int nt, __global const INDEX *restrict indices, __global const T *restrict on,
    __global const T *restrict off, __global T *restrict out PARAMETERS)
{
    const T set = on[0], unset = off[0];
    for (int p = FIRST_UNIT(t, nt); p < FIRST_UNIT(t + 1, nt); p++) {
        __global T *restrict to = out + p * OUT_STRIDE;
        for (int c = 0; c < CHANNELS; c++) {
            const int element = p * CHANNELS + c;
            const int outer = QUOTIENT(element, DEPTH_INNER), within = element - outer * DEPTH_INNER;
            const int depth = QUOTIENT(within, INNER), i = outer * INNER + within - depth * INNER;
            const int row = QUOTIENT(i, INDEX_CHANNELS);
            const INDEX index = indices[row * INDEX_STRIDE + (i - row * INDEX_CHANNELS) * INDEX_CHANNEL_STRIDE];
            to[c] = index == depth ? set : unset;
        }
        for (int c = CHANNELS; c < CHANNELS + TAIL; c++)
            to[c] = 0;
    }
}
