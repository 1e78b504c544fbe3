// Reduction over REDUCED pixels, channel by channel, in work-groups: 256 / LANES vectors of four channels by LANES ranges of
// pixels, whose results meet in local memory. Pixel r of those of output p lies KEPT(p) + JOINED(r) floats behind the start.
// SPLIT: the third dimension of the groups is a range of RANGE of these pixels, whose results go to scratch memory,
// [ranges][outputs][CHANNELS], for a launch that joins them.
// Defines: LANES, SPLIT, START, COMBINE(a, b), RESULT(x) and the two generated expressions, as in reduce.cl.
// Local: partial [256], of float4. The second dimension of the groups is the output pixel.
// Parameters: REDUCED, CHANNELS (padded), OUT_STRIDE, those of the expressions; of RESULT, or for ranges RANGE and OUTPUTS.
#define QUADS (256 / LANES)
static void FUNC(INPUT(in), OUTPUT(out) PARAMETERS)
{
    const int lx = LOCAL_ID(0);
    const int lane = LOCAL_ID(1);
    const int item = lane * QUADS + lx;
    const int c = (GROUP_ID(0) * QUADS + lx) * 4;
    const int p = GROUP_ID(1);
#if SPLIT
    const int first = GROUP_ID(2) * RANGE;
    const int last = min(first + RANGE, REDUCED);
#else
    const int first = 0;
    const int last = REDUCED;
#endif
    float4 result = SPLAT4(START);
    if (c < CHANNELS) {
        const int from = KEPT(p) + c;
        for (int r = first + lane; r < last; r += LANES) {
            const float4 v = LOAD4(in, from + JOINED(r));
            result = COMBINE(result, v);
        }
    }
    partial[item] = result;
    JOIN_ITEMS(partial, item, lane, LANES, QUADS, COMBINE)
    if (lane == 0 && c < CHANNELS) {
        const float4 joined = partial[item];
#if SPLIT
        STORE4(out, (GROUP_ID(2) * OUTPUTS + p) * CHANNELS + c, joined);
#else
        const float4 v = RESULT(joined);
        STORE4(out, p * OUT_STRIDE + c, EPILOGUE(v, p, c));
#endif
    }
}
#undef QUADS
