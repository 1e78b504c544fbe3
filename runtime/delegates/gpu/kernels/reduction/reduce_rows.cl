// Reduction over the channels of REDUCED pixels: element o of the output, counted in row-major order, is that of the
// pixels that lie KEPT(o) + JOINED(r) elements behind the start of the input. A unit is 16 channels of an output pixel.
// Defines: T (the type of elements), P (that of partial results), START (the first of these), COMBINE(a, b), RESULT(x), what
// is stored of a partial result, and the two generated expressions.
// Parameters: REDUCED, CHANNELS, OUT_CHANNELS, OUT_STRIDE, those of RESULT and of the expressions, and as a divisor BLOCKS
// (units of a pixel).
// A pixel's channels are combined as 16 partial results side by side, joined in halves. Those behind the last whole vector
// are taken one by one, because the padded lanes beside them hold unspecified numbers. Sixteen outputs make one vector,
// so that the epilogue and the store are those of every other kernel.
static void FUNC(const int t, const int nt, __global const T *restrict in, __global T *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int p = QUOTIENT(u, BLOCKS), first = (u - p * BLOCKS) * 16;
        P lanes[16];
        for (int i = 0; i < 16; i++) {
            VECTOR(P, 16) wide = (VECTOR(P, 16))(START);
            P narrow = START;
            const int o = p * OUT_CHANNELS + first + i, last = first + i < OUT_CHANNELS ? REDUCED : 0;
            __global const T *from = in + KEPT(o);
            for (int r = 0; r < last; r++) {
                __global const T *row = from + JOINED(r);
                for (int c = 0; c + 16 <= CHANNELS; c += 16)
                    wide = COMBINE(wide, CONVERT(P, 16)(LOAD16(T, row + c)));
                for (int c = CHANNELS / 16 * 16; c < CHANNELS; c++)
                    narrow = COMBINE(narrow, row[c]);
            }
            const VECTOR(P, 8) eight = COMBINE(wide.lo, wide.hi);
            const VECTOR(P, 4) four = COMBINE(eight.lo, eight.hi);
            const VECTOR(P, 2) two = COMBINE(four.lo, four.hi);
            const P one = COMBINE(two.x, two.y);
            lanes[i] = last ? COMBINE(narrow, one) : (P)0;
        }
        const VECTOR(P, 16) all = vload16(0, lanes);
        const VECTOR(T, 16) v = CONVERT(T, 16)(RESULT(all));
        STORE16(T, EPILOGUE(v, p, first), out + p * OUT_STRIDE + first);
    }
}
