// Rows of channels (ROWS 1) or elements (ROWS 0) at the positions of index vectors: the input is [outer][extents..][INNER]
// items, the output [outer][COUNT][INNER], and SHARED outer positions in a row use the same COUNT vectors of DEPTH indices.
// A unit is BLOCK lanes of an output pixel. CHECKED: 1 where the indices are computed; one that is outside of its extent
// counts as 0 and sets the flag.
// Defines: T, the type that moves an element, INDEX, that of an index, ROWS, CHECKED, DEPTH, EXTENTS, the names of as many
// parameters, BLOCK, and VECTORS: 1 where whole vectors may be copied. Parameters: EXTENT0.., SPAN (their product), CHANNELS,
// IN_CHANNEL_STRIDE, IN_STRIDE, OUT_STRIDE, TAIL (lanes to fill with zeros), INDEX_STRIDE, COUNT, and as divisors BLOCKS (units of a
// pixel), IN_CHANNELS, INDEX_CHANNELS, COUNT_INNER (COUNT * INNER), INNER, SHARED.
#if CHECKED
#define FLAG , __global int *restrict flag
#else
#define FLAG
#endif
static void FUNC(const int t, const int nt, __global const T *restrict in, __global const INDEX *restrict indices,
    __global T *restrict out FLAG PARAMETERS)
{
    const int extents[] = {EXTENTS};
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int p = QUOTIENT(u, BLOCKS), first = (u - p * BLOCKS) * BLOCK, end = min(first + BLOCK, CHANNELS);
        __global T *restrict to = out + p * OUT_STRIDE;
        for (int c = first; c < end; c += ROWS ? end - first : 1) {
            const int item = ROWS ? p : p * CHANNELS + c;
            const int outer = QUOTIENT(item, COUNT_INNER), within = item - outer * COUNT_INNER;
            const int vector = QUOTIENT(within, INNER);
            const int place = (QUOTIENT(outer, SHARED) * COUNT + vector) * DEPTH;
            int position = 0;
            for (int k = 0; k < DEPTH; k++) {
                const int row = QUOTIENT(place + k, INDEX_CHANNELS);
                const INDEX index = indices[row * INDEX_STRIDE + place + k - row * INDEX_CHANNELS];
#if CHECKED
                const int is_inside = index >= 0 && index < extents[k];
                if (!is_inside)
                    *flag = 1;
                position = position * extents[k] + (is_inside ? (int)index : 0);
#else
                position = position * extents[k] + (int)index;
#endif
            }
            const int source = (outer * SPAN + position) * INNER + within - vector * INNER;
#if ROWS
            __global const T *from = in + source * IN_STRIDE;
#if VECTORS
            for (int lane = first; lane < end; lane += 16)
                store16(load16(from + lane), to + lane);
#else
            for (int lane = first; lane < end; lane++)
                to[lane] = from[lane * IN_CHANNEL_STRIDE];
#endif
#else
            const int pixel = QUOTIENT(source, IN_CHANNELS);
            to[c] = in[pixel * IN_STRIDE + (source - pixel * IN_CHANNELS) * IN_CHANNEL_STRIDE];
#endif
        }
#if !VECTORS
        if (end == CHANNELS)
            for (int lane = CHANNELS; lane < CHANNELS + TAIL; lane++)
                to[lane] = 0;
#endif
    }
}
#undef FLAG
