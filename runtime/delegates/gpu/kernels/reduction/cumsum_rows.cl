// Running sums along the channels of each pixel; a unit is one pixel. Each sum needs the one before, so sums are made one
// by one, and stored sixteen at a time, so that the epilogue is that of every other kernel.
// Defines: EXCLUSIVE (1: without the element itself), REVERSE (1: from the end).
// Parameters: CHANNELS, IN_STRIDE, OUT_STRIDE.
#define BLOCKS ((CHANNELS + 15) / 16)
static void FUNC(const int t, const int nt, __global const float *restrict in, __global float *restrict out PARAMETERS)
{
    for (int p = FIRST_UNIT(t, nt); p < FIRST_UNIT(t + 1, nt); p++) {
        float total = 0.0f;
        for (int block = 0; block < BLOCKS; block++) {
            const int c = (REVERSE ? BLOCKS - 1 - block : block) * 16;
            float lanes[16];
            for (int i = 0; i < 16; i++) {
                const int lane = REVERSE ? 15 - i : i;
                const float before = total;
                total += c + lane < CHANNELS ? in[p * IN_STRIDE + c + lane] : 0.0f;
                lanes[lane] = c + lane < CHANNELS ? (EXCLUSIVE ? before : total) : 0.0f;
            }
            const float16 v = vload16(0, lanes);
            store16(EPILOGUE(v, p, c), out + p * OUT_STRIDE + c);
        }
    }
}
#undef BLOCKS
