// Reduction over the channels of REDUCED pixels: element o of the output, counted in row-major order, is that of the
// pixels that lie KEPT(o) + JOINED(r) elements behind the start of the input. A unit is one output pixel.
// Defines: KIND (0 sum, 1 max, 2 min, 3 product), and the two generated expressions.
// Parameters: REDUCED, CHANNELS, OUT_CHANNELS, OUT_STRIDE, SCALE, and those of the expressions.
#if KIND == 0
#define START 0.0f
#define COMBINE(a, b) ((a) + (b))
#elif KIND == 1
#define START (-FLT_MAX)
#define COMBINE(a, b) ((b) > (a) ? (b) : (a))
#elif KIND == 2
#define START FLT_MAX
#define COMBINE(a, b) ((b) < (a) ? (b) : (a))
#else
#define START 1.0f
#define COMBINE(a, b) ((a) * (b))
#endif
// A pixel's channels are combined as 16 partial results side by side, joined in halves. Those behind the last whole vector
// are taken one by one, because the padded lanes beside them hold unspecified numbers. Sixteen outputs make one vector,
// so that the epilogue and the store are those of every other kernel.
static void FUNC(const int t, const int nt, __global const float *restrict in, __global float *restrict out PARAMETERS)
{
    for (int p = FIRST_UNIT(t, nt); p < FIRST_UNIT(t + 1, nt); p++)
        for (int first = 0; first < OUT_CHANNELS; first += 16) {
            float lanes[16];
            for (int i = 0; i < 16; i++) {
                float16 wide = (float16)START;
                float narrow = START;
                const int o = p * OUT_CHANNELS + first + i, last = first + i < OUT_CHANNELS ? REDUCED : 0;
                __global const float *from = in + KEPT(o);
                for (int r = 0; r < last; r++) {
                    __global const float *row = from + JOINED(r);
                    for (int c = 0; c + 16 <= CHANNELS; c += 16)
                        wide = COMBINE(wide, load16(row + c));
                    for (int c = CHANNELS / 16 * 16; c < CHANNELS; c++)
                        narrow = COMBINE(narrow, row[c]);
                }
                const float8 eight = COMBINE(wide.lo, wide.hi);
                const float4 four = COMBINE(eight.lo, eight.hi);
                const float2 two = COMBINE(four.lo, four.hi);
                const float one = COMBINE(two.x, two.y);
                lanes[i] = last ? COMBINE(narrow, one) * SCALE : 0.0f;
            }
            const float16 v = vload16(0, lanes);
            store16(EPILOGUE(v, p, first), out + p * OUT_STRIDE + first);
        }
}
#undef START
#undef COMBINE
