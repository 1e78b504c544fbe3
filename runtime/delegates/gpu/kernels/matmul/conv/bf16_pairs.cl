// Rounds the rows of a product to bfloat16 for gemm_bf16.cl: neighbours along k share 32 bits, the first of them in the
// low half. A unit is one row. out: [rows][PAIRS]; behind an odd K stands a zero.
// Parameters: K, PAIRS, IN_STRIDE and IN_STEP (elements from row to row, from k to k + 1).
#ifndef BF16_BITS
#define BF16_BITS
// The nearest bfloat16 of a finite number, ties to even, in the high bits; a NaN stays one by its quiet bit.
static inline uint16 bf16_bits16(float16 x)
{
    const uint16 bits = as_uint16(x);
    const uint16 nearest = bits + 0x7fffu + ((bits >> 16) & 1u);
    return (as_uint16(x != x) & (bits | 0x400000u)) | (as_uint16(x == x) & nearest);
}
#endif
static void FUNC(const int t, const int nt, __global const float *restrict in, __global int *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        __global const float *a = in + u * IN_STRIDE;
        __global uint *to = (__global uint *)out + u * PAIRS;
        int pair = 0;
        if (IN_STEP == 1)
            for (; 2 * pair + 32 <= K; pair += 16) {
                const uint16 x = bf16_bits16(load16(a + 2 * pair)), y = bf16_bits16(load16(a + 2 * pair + 16));
                const uint16 first = (uint16)(x.even, y.even), second = (uint16)(x.odd, y.odd);
                store16(as_float16(first >> 16 | (second & 0xffff0000u)), (__global float *)(to + pair));
            }
        for (; pair < PAIRS; pair++) {
            const float first = a[2 * pair * IN_STEP], second = 2 * pair + 1 < K ? a[(2 * pair + 1) * IN_STEP] : 0.0f;
            const uint16 bits = bf16_bits16((float16)((float8)first, (float8)second));
            to[pair] = bits.s0 >> 16 | (bits.sf & 0xffff0000u);
        }
    }
}
