// Running sums in work-groups, of float32 and int32: a work-item takes every GLOBAL_SIZE-th run, of which each sum needs the one
// before: a row of channels (ROWS 1), or four channels along a leading dimension of LENGTH, the pixels being
// [outer][LENGTH][INNER].
// Defines: T (int32 is summed without a sign, so that sums wrap around), IS_FLOAT, VALUE(i), the load of element i, ROWS,
// EXCLUSIVE (1: without the element itself), and PLACE(k, n), the place of step k of n, from either end.
// Parameters: RUNS, CHANNELS, IN_STRIDE, OUT_STRIDE, LENGTH, and as divisors INNER and VECTORS (of a pixel).
#if IS_FLOAT
#define STORE_SUMS(p, c) STORE4(out, (p) * OUT_STRIDE + (c), EPILOGUE(mask4(VEC4(v[0], v[1], v[2], v[3]), c, CHANNELS), p, c))
#else
#define STORE_SUMS(p, c) \
    for (int lane = 0; lane < 4; lane++) { \
        STORE_WORD(out, (p) * OUT_STRIDE + (c) + lane, v[lane]); \
    }
#endif
static void FUNC(INPUT(in), OUTPUT(out) PARAMETERS)
{
    for (int run = GLOBAL_ID(0); run < RUNS; run += GLOBAL_SIZE(0)) {
        T v[4];
#if ROWS
        T total = (T)0;
        for (int k = 0; k < VECTORS; k++) {
            const int c = PLACE(k, VECTORS) * 4;
            for (int j = 0; j < 4; j++) {
                const int lane = PLACE(j, 4);
                T x = (T)0;
                if (c + lane < CHANNELS) {
                    x = VALUE(run * IN_STRIDE + c + lane);
                }
                const T before = total;
                total = total + x;
                v[lane] = EXCLUSIVE != 0 ? before : total;
            }
            STORE_SUMS(run, c);
        }
#else
        const int line = QUOTIENT(run, VECTORS);
        const int c = (run - line * VECTORS) * 4;
        const int outer = QUOTIENT(line, INNER);
        T total[4];
        for (int lane = 0; lane < 4; lane++) {
            total[lane] = (T)0;
        }
        for (int k = 0; k < LENGTH; k++) {
            const int p = (outer * LENGTH + PLACE(k, LENGTH) - outer) * INNER + line;
            for (int lane = 0; lane < 4; lane++) {
                const T before = total[lane];
                total[lane] = before + VALUE(p * IN_STRIDE + c + lane);
                v[lane] = EXCLUSIVE != 0 ? before : total[lane];
            }
            STORE_SUMS(p, c);
        }
#endif
    }
}
#undef STORE_SUMS
