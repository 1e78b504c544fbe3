// Indices of the greatest (LARGEST 1) or least elements along one axis: the input is [outer][LENGTH][INNER], the output
// [outer][INNER]; of equal elements the first counts, and a NaN counts as less, or as greater, than every number.
// A unit is 16 output elements in a row. Defines: T, INDEX, the types of elements and indices, IS_FLOAT, LARGEST.
// Parameters: LENGTH, ELEMENTS (of the output), IN_STRIDE, IN_CHANNEL_STRIDE, IN_STEP (along the axis), OUT_STRIDE, TAIL (lanes
// to fill with zeros), and as divisors INNER, IN_CHANNELS, OUT_CHANNELS.
#if LARGEST
#define PRECEDES(a, b) ((a) > (b))
#define LAST -INFINITY
#else
#define PRECEDES(a, b) ((a) < (b))
#define LAST INFINITY
#endif
#if IS_FLOAT
#define RANKED(x) (isnan(x) ? LAST : (x))
#else
#define RANKED(x) (x)
#endif
static void FUNC(
    const int t, const int nt, __global const T *restrict in, __global INDEX *restrict out PARAMETERS)
{
    const int last = min(FIRST_UNIT(t + 1, nt) * 16, ELEMENTS);
    for (int e = FIRST_UNIT(t, nt) * 16; e < last; e++) {
        const int outer = QUOTIENT(e, INNER);
        const int first = outer * LENGTH * INNER + e - outer * INNER;
        const int row = QUOTIENT(first, IN_CHANNELS);
        __global const T *from = in + row * IN_STRIDE + (first - row * IN_CHANNELS) * IN_CHANNEL_STRIDE;
        T best = 0;
        int at = 0;
        for (int i = 0; i < LENGTH; i++) {
            const T read = from[i * IN_STEP];
            const T x = RANKED(read);
            const int precedes = i == 0 || PRECEDES(x, best);
            at = precedes ? i : at;
            best = precedes ? x : best;
        }
        const int pixel = QUOTIENT(e, OUT_CHANNELS), c = e - pixel * OUT_CHANNELS;
        __global INDEX *to = out + pixel * OUT_STRIDE;
        to[c] = at;
        if (c == OUT_CHANNELS - 1)
            for (int lane = OUT_CHANNELS; lane < OUT_CHANNELS + TAIL; lane++)
                to[lane] = 0;
    }
}
#undef PRECEDES
#undef LAST
#undef RANKED
