// The K greatest elements of each row of channels and their indices, in descending order; of equal elements the first comes
// first, and a NaN before every number. A unit is one row. Its results are kept sorted where they are to stand, so an
// element that does not belong to them costs one comparison.
// Defines: T, the type of elements, IS_FLOAT. Parameters: CHANNELS, IN_STRIDE, IN_CHANNEL_STRIDE, K, VALUE_STRIDE,
// INDEX_STRIDE, VALUE_TAIL and INDEX_TAIL (lanes to fill with zeros).
#if IS_FLOAT
#define PRECEDES(a, b) ((a) > (b) || (isnan(a) && !isnan(b)))
#else
#define PRECEDES(a, b) ((a) > (b))
#endif
static void FUNC(const int t, const int nt, __global const T *restrict in, __global T *restrict values,
    __global int *restrict indices PARAMETERS)
{
    for (int p = FIRST_UNIT(t, nt); p < FIRST_UNIT(t + 1, nt); p++) {
        __global T *restrict best = values + p * VALUE_STRIDE;
        __global int *restrict at = indices + p * INDEX_STRIDE;
        for (int c = 0; c < CHANNELS; c++) {
            const T x = in[p * IN_STRIDE + c * IN_CHANNEL_STRIDE];
            int place = min(c, K);
            if (place == K && !PRECEDES(x, best[K - 1]))
                continue;
            for (; place > 0 && PRECEDES(x, best[place - 1]); place--) {
                if (place == K)
                    continue;
                best[place] = best[place - 1];
                at[place] = at[place - 1];
            }
            best[place] = x;
            at[place] = c;
        }
        for (int c = K; c < K + VALUE_TAIL; c++)
            best[c] = 0;
        for (int c = K; c < K + INDEX_TAIL; c++)
            at[c] = 0;
    }
}
#undef PRECEDES
