// Reduction of leading dimensions: output pixel p is that of the REDUCED pixels that lie KEPT(p) + JOINED(r) elements
// behind the start of the input. A unit is one output pixel and BLOCK channels (BLOCK: 16 or 32).
// Defines: BLOCK, T (the type of elements), P (that of partial results), START (the first of these), COMBINE(a, b), RESULT(x),
// what is stored of a partial result, and the two generated expressions.
// Parameters: REDUCED, CHANNELS (padded), OUT_STRIDE, those of RESULT and of the expressions.
#define PARTIAL(pointer) CONVERT(P, 16)(LOAD16(T, pointer))
static void FUNC(const int t, const int nt, __global const T *restrict in, __global T *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int p = u / (CHANNELS / BLOCK), c = u % (CHANNELS / BLOCK) * BLOCK;
        __global const T *from = in + KEPT(p) + c;
        // Four accumulators: shorter chains of dependent additions, and a smaller rounding error.
        VECTOR(P, 16) v[4][BLOCK / 16];
        for (int a = 0; a < 4; a++)
            for (int b = 0; b < BLOCK / 16; b++)
                v[a][b] = (VECTOR(P, 16))(START);
        int r = 0;
        for (; r + 4 <= REDUCED; r += 4)
            for (int a = 0; a < 4; a++)
                for (int b = 0; b < BLOCK / 16; b++)
                    v[a][b] = COMBINE(v[a][b], PARTIAL(from + JOINED((r + a)) + b * 16));
        for (; r < REDUCED; r++)
            for (int b = 0; b < BLOCK / 16; b++)
                v[0][b] = COMBINE(v[0][b], PARTIAL(from + JOINED(r) + b * 16));
        for (int b = 0; b < BLOCK / 16; b++) {
            const VECTOR(P, 16) all = COMBINE(COMBINE(v[0][b], v[1][b]), COMBINE(v[2][b], v[3][b]));
            const VECTOR(T, 16) w = CONVERT(T, 16)(RESULT(all));
            STORE16(T, EPILOGUE(w, p, c + b * 16), out + p * OUT_STRIDE + c + b * 16);
        }
    }
}
#undef PARTIAL
