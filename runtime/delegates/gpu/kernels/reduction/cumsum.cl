// Running sums along a leading dimension of LENGTH: the pixels are [outer][LENGTH][INNER]. A unit is the whole run of one
// outer and one inner position, for 16 channels; each sum needs the one before.
// Defines: T, the type of elements (without a sign, so that sums wrap around), IS_FLOAT, EXCLUSIVE (1: without the element itself), REVERSE (1: from the end).
// Parameters: LENGTH, INNER, CHANNELS, IN_STRIDE, OUT_STRIDE.
#define BLOCKS ((CHANNELS + 15) / 16)
static void FUNC(const int t, const int nt, __global const T *restrict in, __global T *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int c = u % BLOCKS * 16, run = u / BLOCKS;
        const int first = run / INNER * (LENGTH * INNER) + run % INNER;
        VECTOR(T, 16) total = (VECTOR(T, 16))0;
        for (int i = 0; i < LENGTH; i++) {
            const int p = first + (REVERSE ? LENGTH - 1 - i : i) * INNER;
            const VECTOR(T, 16) before = total;
            total += LOAD16(T, in + p * IN_STRIDE + c);
#if IS_FLOAT
            const float16 v = mask16(EXCLUSIVE ? before : total, c, CHANNELS);
#else
            const VECTOR(T, 16) v = EXCLUSIVE ? before : total;
#endif
            STORE16(T, EPILOGUE(v, p, c), out + p * OUT_STRIDE + c);
        }
    }
}
#undef BLOCKS
