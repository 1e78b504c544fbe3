// Convolutions whose outputs read few input channels each, those of their group: a work-item computes four outputs of a
// pixel. Nothing is shared, as neighbouring outputs read different inputs.
// weights: a row of CHANNELS for each tap and channel of a group, of the type WEIGHT.
// Defines: WEIGHT, ALIKE (whether four neighbouring outputs always belong to one group).
// Parameters: TOTAL (vectors of four results), IN_H, IN_W, IN_STRIDE, IN_STEP, OUT_STRIDE, PAD_TOP, PAD_LEFT, FILTER_H,
// FILTER_W, STRIDE_H, STRIDE_W, DILATION_H, DILATION_W, CHANNELS (padded), OUT_CHANNELS, GROUP_IN, and as divisors VECTORS (of
// a pixel), OUT_PIXELS, OUT_W, GROUP_OUT.
#define FIRST_OF(channel) (QUOTIENT(min(channel, OUT_CHANNELS - 1), GROUP_OUT) * GROUP_IN * IN_STEP)
static void FUNC(INPUT(in), INPUT(weights), OUTPUT(out) PARAMETERS)
{
    FOR_EACH_VECTOR {
        PLACE_OF_VECTOR(p, c);
        PLACE_OF_PIXEL(p, image, oy, ox);
        const int top = oy * STRIDE_H - PAD_TOP;
        const int left = ox * STRIDE_W - PAD_LEFT;
        const int first0 = FIRST_OF(c);
#if !ALIKE
        const int first1 = FIRST_OF(c + 1);
        const int first2 = FIRST_OF(c + 2);
        const int first3 = FIRST_OF(c + 3);
#endif
        const float4 scale = SCALE4(weights, c);
        const float4 zero = ZERO4(weights, c);
        float4 sum = LOAD4(weights, c);
        for (int fy = 0; fy < FILTER_H; fy++) {
            for (int fx = 0; fx < FILTER_W; fx++) {
                const int y = top + fy * DILATION_H;
                const int x = left + fx * DILATION_W;
                if (y >= 0 && y < IN_H && x >= 0 && x < IN_W) {
                    const int from = ((image * IN_H + y) * IN_W + x) * IN_STRIDE;
                    const int row = (fy * FILTER_W + fx) * GROUP_IN;
                    for (int k = 0; k < GROUP_IN; k++) {
                        const int at = from + k * IN_STEP;
#if ALIKE
                        const float4 v = SPLAT4(LOAD(in, at + first0));
#else
                        const float4 v = VEC4(LOAD(in, at + first0), LOAD(in, at + first1), LOAD(in, at + first2),
                            LOAD(in, at + first3));
#endif
                        sum = v * WEIGHTS4(weights, (row + k) * CHANNELS + c, scale, zero) + sum;
                    }
                }
            }
        }
        STORE4(out, p * OUT_STRIDE + c, EPILOGUE(mask4(sum, c, OUT_CHANNELS), p, c));
    }
}
#undef FIRST_OF
