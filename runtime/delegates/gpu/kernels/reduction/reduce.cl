// Reduction of leading dimensions: output pixel p is that of the REDUCED pixels that lie KEPT(p) + JOINED(r) elements
// behind the start of the input. A unit is one output pixel and BLOCK channels (BLOCK: 16 or 32).
// Defines: BLOCK, KIND (0 sum, 1 max, 2 min, 3 product), and the two generated expressions.
// Parameters: REDUCED, CHANNELS (padded), OUT_STRIDE, SCALE, and those of the expressions.
#if KIND == 0
#define START 0.0f
#define COMBINE(a, b) ((a) + (b))
#elif KIND == 1
#define START (-FLT_MAX)
#define COMBINE(a, b) max16(b, a)
#elif KIND == 2
#define START FLT_MAX
#define COMBINE(a, b) min16(b, a)
#else
#define START 1.0f
#define COMBINE(a, b) ((a) * (b))
#endif
static void FUNC(const int t, const int nt, __global const float *restrict in, __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int p = u / (CHANNELS / BLOCK), c = u % (CHANNELS / BLOCK) * BLOCK;
        __global const float *from = in + KEPT(p) + c;
        // Four accumulators: shorter chains of dependent additions, and a smaller rounding error.
        float16 v[4][BLOCK / 16];
        for (int a = 0; a < 4; a++)
            for (int b = 0; b < BLOCK / 16; b++)
                v[a][b] = (float16)START;
        int r = 0;
        for (; r + 4 <= REDUCED; r += 4)
            for (int a = 0; a < 4; a++)
                for (int b = 0; b < BLOCK / 16; b++)
                    v[a][b] = COMBINE(v[a][b], load16(from + JOINED((r + a)) + b * 16));
        for (; r < REDUCED; r++)
            for (int b = 0; b < BLOCK / 16; b++)
                v[0][b] = COMBINE(v[0][b], load16(from + JOINED(r) + b * 16));
        for (int b = 0; b < BLOCK / 16; b++) {
            const float16 w = COMBINE(COMBINE(v[0][b], v[1][b]), COMBINE(v[2][b], v[3][b])) * SCALE;
            store16(EPILOGUE(w, p, c + b * 16), out + p * OUT_STRIDE + c + b * 16);
        }
    }
}
#undef START
#undef COMBINE
