// Rows of a constant table in the type in which the model's file holds it, widened: out[p][:] = table[indices[p]][:].
// A unit is BLOCK lanes of a row. CHECKED: 1 where the indices are computed; one that is outside counts as 0 and sets the flag.
// table: for each row, where it consists of levels, its scale and its zero point, two floats; then the numbers, padded to
// CHANNELS.
// Defines: WEIGHT, INDEX, the type of an index, CHECKED, BLOCK. Parameters: ROWS (of the table), ROW_BYTES, HEAD_BYTES, CHANNELS
// (padded), OUT_STRIDE, INDEX_STRIDE, and as divisors BLOCKS (units of a row), INDEX_CHANNELS.
#if CHECKED
#define FLAG , __global int *restrict flag
#else
#define FLAG
#endif
static void FUNC(const int t, const int nt, __global const uchar *restrict table,
    __global const INDEX *restrict indices, __global float *restrict out FLAG PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int p = QUOTIENT(u, BLOCKS), first = (u - p * BLOCKS) * BLOCK;
        const int row = QUOTIENT(p, INDEX_CHANNELS);
        INDEX index = indices[row * INDEX_STRIDE + p - row * INDEX_CHANNELS];
#if CHECKED
        if (index < 0 || index >= ROWS) {
            *flag = 1;
            index = 0;
        }
#endif
        __global const uchar *from = table + (size_t)index * ROW_BYTES;
        __global const float *head = (__global const float *)from;
        const float16 scale = (float16)(HEAD_BYTES ? head[0] : 1.0f), zero = (float16)(HEAD_BYTES ? head[1] : 0.0f);
        for (int lane = first; lane < min(first + BLOCK, CHANNELS); lane += 16) {
            const float16 value = LEVELS16(from + HEAD_BYTES, lane);
            store16(HEAD_BYTES ? (value - zero) * scale : value, out + p * OUT_STRIDE + lane);
        }
    }
}
#undef FLAG
