// What follows from the sums of an LSTM's gates on integers: the new cell, and the output or what will be projected. A unit is
// one batch row, whose cells the work-items of a group share. The sums, [batch][gate][PADDED], are overwritten; the gates stand
// in the order candidate, input, forget, output, three without the input's. Their sigmoid and tanh, and the cell's, are tables
// by the bits of a level. A work-item reads of what it writes its own elements alone.
// Defines: GATES, COMPLETED (peepholes [gate][batch][PADDED], norms and biases [gate][PADDED], and eight numbers for each gate:
// multiplier, left and right shift of the peephole, the same of the norm, the least variance), NORMS, BASIC (the basic kernel's
// roundings, and uint8 for OUT), OUT, KEEPS (the output is the state too), ROW_ITEMS (0: units, else the work-items of a group).
// Local, in groups: partial [ROW_ITEMS], of long.
// Parameters: CELLS, PADDED, BATCH, OUT_FIRST, OUT_STEP, OUT_STRIDE, the strides of the states, CELL_SHIFT (of what enters the
// cell), CELL_CLIP, and of the output MULTIPLIER, LEFT, RIGHT, ZERO.
#if ROW_ITEMS
#define EACH_ROW(b) const int b = GROUP_ID(0);
#define EACH_CELL(c, end) for (int c = LOCAL_ID(0); c < (end); c += ROW_ITEMS)
#define SHARED , __local long *partial
#define SHARE , partial
#define UNITS_OF
#else
#define EACH_ROW(b) for (int b = FIRST_UNIT(t, nt); b < FIRST_UNIT(t + 1, nt); b++)
#define EACH_CELL(c, end) for (int c = 0; c < (end); c++)
#define SHARED
#define SHARE
#define UNITS_OF const int t, const int nt,
#endif
#ifndef STEPS_LEVELS_CELLS
#define STEPS_LEVELS_CELLS
static inline int shifted_right(int x, int exponent)
{
    const int middle = (1 << exponent) >> 1;
    return (x + (middle - (middle > 0 && x < 0))) >> exponent;
}
static inline int high_product_of(int a, int b) { return (int)(((long)a * b + (1L << 30)) >> 31); }
static inline int scaled_level(int x, int multiplier, int left, int right)
{
    return shifted_right(high_product_of(x << left, multiplier), right);
}
static inline int saturated(int x) { return clamp(x, -32768, 32767); }
static inline int looked_up(__global const short *table, int level) { return table[level & 0xffff]; }
// Without integer bits, with the rounding of a doubling product of 16 bits.
static inline int product_of_16(int a, int b) { return min((a * b + (1 << 14)) >> 15, 32767); }

// GetInvSqrtQuantizedMultiplierExp: 1 / sqrt(value) as a multiplier and a shift to the right, by Newton's method in Q3.28.
static inline int inverse_root(long value, int *right)
{
    *right = 0;
    if (value <= 1)
        return INT_MAX;
    int shift = 11;
    for (; value >= 1 << 29; shift++)
        value /= 4;
    const int pairs = (clz((int)value) - 1) / 2 - 1;
    shift -= pairs;
    const int one_half = (((int)value << (2 * pairs) >> 1) + 1) >> 1;
    int x = 1 << 28;
    for (int i = 0; i < 5; i++) {
        const int cube = (int)clamp((long)high_product_of(high_product_of(x, x), x) << 6, (long)INT_MIN, (long)INT_MAX);
        const long next = (long)high_product_of(x, (1 << 28) + (1 << 27)) - high_product_of(one_half, cube);
        x = (int)clamp(next << 3, (long)INT_MIN, (long)INT_MAX);
    }
    // sqrt(2) / 2 in Q0.31.
    const int found = high_product_of(x, 1518500250);
    *right = max(shift, 0);
    return shift < 0 ? found << -shift : found;
}
static void normalize_levels(__global short *row, __global const short *weights, __global const int *biases,
    __global const int *numbers, const int cells SHARED)
{
    long sum = 0, squares = 0;
    EACH_CELL(c, cells) {
        sum += row[c];
        squares += row[c] * row[c];
    }
#if ROW_ITEMS
    const int lane = LOCAL_ID(0), item = lane;
    JOIN_ROW(sum, ADDED)
    JOIN_ROW(squares, ADDED)
#endif
    const long mean = sum * 1024 / cells;
    const long variance = (squares * ((1 << 20) / cells) - mean * mean) / (1 << 20);
    int right;
    const int multiplier = inverse_root(variance < 1 ? numbers[6] : variance, &right);
    EACH_CELL(c, cells) {
        const long normal = scaled_level((int)(1024 * row[c] - mean), multiplier, 0, right);
        const long weighted = normal * weights[c] + biases[c];
        const int rounded = (int)((weighted > 0 ? weighted + 512 : weighted - 512) / 1024);
        row[c] = (short)saturated(scaled_level(rounded, numbers[3], numbers[4], numbers[5]));
    }
}
#endif
#if COMPLETED
static void JOIN(FUNC, complete)(__global short *row, const int gate, __global const short *cell,
    __global const short *peepholes, __global const short *norms, __global const int *biases, __global const int *numbers,
    const int cells, const int padded, const int batch, const int b SHARED)
{
    __global const int *n = numbers + gate * 8;
    EACH_CELL(c, cells)
        row[c] = (short)saturated(
            row[c] + scaled_level(cell[c] * peepholes[(gate * batch + b) * padded + c], n[0], n[1], n[2]));
#if NORMS
    normalize_levels(row, norms + gate * padded, biases + gate * padded, n, cells SHARE);
#endif
}
#define COMPLETE(gate, cell) JOIN(FUNC, complete)(row + (gate) * PADDED, gate, cell, peepholes, norms, biases, numbers, \
    CELLS, PADDED, BATCH, b SHARE)
#else
#define COMPLETE(gate, cell)
#endif
static void FUNC(UNITS_OF __global short *restrict sums, __global const short *restrict sigmoid,
    __global const short *restrict candidate_tanh, __global const short *restrict cell_tanh
#if COMPLETED
    , __global const short *restrict peepholes, __global const short *restrict norms, __global const int *restrict biases,
    __global const int *restrict numbers
#endif
    , __global OUT *out
#if KEEPS
    , __global OUT *state
#endif
    , __global const short *cell, __global short *new_cell PARAMETERS)
{
    EACH_ROW(b) {
        __global short *row = sums + b * GATES * PADDED;
        __global const short *old = cell + b * CELL_STRIDE;
        __global short *fresh = new_cell + b * NEW_CELL_STRIDE;
        __global OUT *to = out + (OUT_FIRST + b * OUT_STEP) * OUT_STRIDE;
        for (int gate = 0; gate < GATES - 1; gate++)
            COMPLETE(gate, old);
        EACH_CELL(c, CELLS) {
            const int candidate = looked_up(candidate_tanh, row[c]);
            const int forget = looked_up(sigmoid, row[(GATES - 2) * PADDED + c]);
            const int given = GATES == 4 ? looked_up(sigmoid, row[PADDED + c]) : 32767 - forget;
#if BASIC
            fresh[c] = (short)saturated(
                shifted_right(product_of_16(given, candidate), CELL_SHIFT) + product_of_16(forget, old[c]));
#else
            const int next = saturated(shifted_right(forget * old[c], 15) + shifted_right(given * candidate, CELL_SHIFT));
            fresh[c] = (short)(CELL_CLIP > 0 ? clamp(next, -CELL_CLIP, CELL_CLIP) : next);
#endif
        }
        COMPLETE(GATES - 1, fresh);
        EACH_CELL(c, PADDED) {
            int level = 0;
            if (c < CELLS) {
                const int gate = looked_up(sigmoid, row[(GATES - 1) * PADDED + c]), shaped = looked_up(cell_tanh, fresh[c]);
#if BASIC
                level = clamp(shifted_right(product_of_16(gate, shaped), 8), -128, 127) + ZERO;
#else
                level = clamp(scaled_level(gate * shaped, MULTIPLIER, LEFT, RIGHT) + ZERO, -128, 127);
#endif
            } else {
                fresh[c] = 0;
            }
            to[c] = (OUT)level;
#if KEEPS
            state[b * STATE_STRIDE + c] = (OUT)level;
#endif
        }
    }
}
#undef COMPLETE
#undef EACH_ROW
#undef EACH_CELL
#undef SHARED
#undef SHARE
#undef UNITS_OF
