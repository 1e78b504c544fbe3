// Running sums along the channels of each pixel; a unit is one pixel. Each sum needs the one before, so sums are made one
// by one, and stored sixteen at a time, so that the epilogue is that of every other kernel.
// Defines: T, the type of elements (without a sign, so that sums wrap around), EXCLUSIVE (1: without the element itself), REVERSE (1: from the end).
// Parameters: CHANNELS, IN_STRIDE, OUT_STRIDE.
#define BLOCKS ((CHANNELS + 15) / 16)
static void FUNC(const int t, const int nt, __global const T *restrict in, __global T *restrict out PARAMETERS)
{
    for (int p = FIRST_UNIT(t, nt); p < FIRST_UNIT(t + 1, nt); p++) {
        T total = 0;
        for (int block = 0; block < BLOCKS; block++) {
            const int c = (REVERSE ? BLOCKS - 1 - block : block) * 16;
            T lanes[16];
            for (int i = 0; i < 16; i++) {
                const int lane = REVERSE ? 15 - i : i;
                const T before = total;
                total += c + lane < CHANNELS ? in[p * IN_STRIDE + c + lane] : (T)0;
                lanes[lane] = c + lane < CHANNELS ? (EXCLUSIVE ? before : total) : (T)0;
            }
            const VECTOR(T, 16) v = vload16(0, lanes);
            STORE16(T, EPILOGUE(v, p, c), out + p * OUT_STRIDE + c);
        }
    }
}
#undef BLOCKS
