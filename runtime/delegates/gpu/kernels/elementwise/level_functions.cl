// An element-wise operator on bytes by a table of its results for all of them; of two operands with PICKS, of which one has one
// byte for all channels of a pixel, which picks one of 256 tables.
// Defines: ROW0(p), where pixel p of the operand begins, PERMUTES (1: an instruction takes 64 bytes from a table of 128), PICKS,
// and with it ROW1(p), where the byte of pixel p lies.
// Parameters: PIXELS, CHANNELS (padded), OUT_STRIDE, STEP0, and those of the rows. A unit is a range of pixels. Lanes behind
// the last channel hold any byte.
#if PERMUTES
typedef int LOCAL_NAME(bytes64) __attribute__((ext_vector_type(16), aligned(1)));
typedef char LOCAL_NAME(signs64) __attribute__((ext_vector_type(64)));
static inline int16 LOCAL_NAME(looked_up)(int16 indices, __global const int16 *table)
{
    int16 low = indices, high = indices;
    __asm__("vpermi2b %2, %1, %0" : "+v"(low) : "v"(table[0]), "v"(table[1]));
    __asm__("vpermi2b %2, %1, %0" : "+v"(high) : "v"(table[2]), "v"(table[3]));
    const LOCAL_NAME(signs64) sign = __builtin_astype(indices, LOCAL_NAME(signs64)) >> 7;
    return (as_int16(__builtin_astype(sign, int16)) & high) | (~__builtin_astype(sign, int16) & low);
}
#endif
static void FUNC(const int t, const int nt, __global const uchar *restrict in,
#if PICKS
    __global const uchar *restrict picks,
#endif
    __global const uchar *restrict tables, __global uchar *restrict out PARAMETERS)
{
    const int first = (int)((long)PIXELS * FIRST_UNIT(t, nt) / UNITS);
    const int last = (int)((long)PIXELS * FIRST_UNIT(t + 1, nt) / UNITS);
    for (int p = first; p < last; p++) {
        __global const uchar *from = in + ROW0(p);
        __global uchar *restrict to = out + (long)p * OUT_STRIDE;
#if PICKS
        __global const uchar *table = tables + 256 * picks[ROW1(p)];
#else
        __global const uchar *table = tables;
#endif
        int c = 0;
#if PERMUTES
        if (STEP0 == 1)
            for (; c + 64 <= CHANNELS; c += 64)
                *(__global LOCAL_NAME(bytes64) *)(to + c) = LOCAL_NAME(looked_up)(
                    *(__global const LOCAL_NAME(bytes64) *)(from + c), (__global const int16 *)table);
#endif
        for (; c < CHANNELS; c++)
            to[c] = table[from[c * STEP0]];
    }
}
