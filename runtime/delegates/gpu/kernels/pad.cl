// Constant padding of up to four dimensions, channels included; a unit is one output row.
// A pixel outside of the input is VALUE in all channels; one inside has VALUE before and behind its channels. TAIL
// zeros keep padded lanes finite.
// Defines: OUT_N, OUT_H, OUT_W, OUT_C, IN_N, IN_H, IN_W, IN_C, BEFORE_N, BEFORE_H, BEFORE_W, BEFORE_C, IN_STRIDE,
// OUT_STRIDE, TAIL, VALUE.
static void FUNC(const int t, const int nt, __global const float *restrict in, __global float *restrict out)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int n = u / OUT_H - BEFORE_N, y = u % OUT_H - BEFORE_H;
        for (int ox = 0; ox < OUT_W; ox++) {
            const int x = ox - BEFORE_W;
            const bool inside = n >= 0 && n < IN_N && y >= 0 && y < IN_H && x >= 0 && x < IN_W;
            __global float *restrict to = out + (u * OUT_W + ox) * OUT_STRIDE;
            if (inside) {
                __global const float *restrict from = in + ((n * IN_H + y) * IN_W + x) * IN_STRIDE;
                for (int c = 0; c < BEFORE_C; c++)
                    to[c] = VALUE;
                for (int c = 0; c < IN_C; c++)
                    to[BEFORE_C + c] = from[c];
                for (int c = BEFORE_C + IN_C; c < OUT_C; c++)
                    to[c] = VALUE;
            } else {
                for (int c = 0; c < OUT_C; c++)
                    to[c] = VALUE;
            }
            for (int c = OUT_C; c < OUT_C + TAIL; c++)
                to[c] = 0.0f;
        }
    }
}
