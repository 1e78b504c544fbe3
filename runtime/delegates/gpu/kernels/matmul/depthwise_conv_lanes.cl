// Depthwise convolution where the work-items of a group are lanes of a processor's vectors: a work-item has one pixel by 16
// channels, the same for all of a group, so that a compiler may load each weight once for all lanes. Nothing is shared and
// none waits.
// weights: a row of CHANNELS for each tap, of the type WEIGHT.
// Defines: WEIGHT, ITEMS (work-items of a group).
// Parameters: M (output pixels), IN_H, IN_W, IN_STRIDE, OUT_STRIDE, PAD_TOP, PAD_LEFT, FILTER_H, FILTER_W, STRIDE_H, STRIDE_W,
// DILATION_H, DILATION_W, CHANNELS (padded), and as divisors OUT_PIXELS, OUT_W.
static void FUNC(INPUT(in), INPUT(weights), OUTPUT(out) PARAMETERS)
{
    const int c = GROUP_ID(0) * 16;
    const int p = GROUP_ID(1) * ITEMS + LOCAL_ID(0);
    const int m = min(p, M - 1);
    PLACE_OF_PIXEL(m, image, oy, ox);
    float4 sum[4];
    float4 scale[4];
    float4 zero[4];
    #pragma unroll
    for (int j = 0; j < 4; j++) {
        scale[j] = SCALE4(weights, c + j * 4);
        zero[j] = ZERO4(weights, c + j * 4);
        sum[j] = LOAD4(weights, c + j * 4);
    }
    for (int fy = 0; fy < FILTER_H; fy++) {
        const int y = oy * STRIDE_H - PAD_TOP + fy * DILATION_H;
        for (int fx = 0; fx < FILTER_W; fx++) {
            const int x = ox * STRIDE_W - PAD_LEFT + fx * DILATION_W;
            const bool is_inside = y >= 0 && y < IN_H && x >= 0 && x < IN_W;
            // What is loaded from elsewhere in place of what lies outside becomes zero.
            const int from = is_inside ? ((image * IN_H + y) * IN_W + x) * IN_STRIDE + c : 0;
            const int row = (fy * FILTER_W + fx) * CHANNELS + c;
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                const float4 loaded = LOAD4(in, from + j * 4);
                const float4 v = is_inside ? loaded : SPLAT4(0.0f);
                sum[j] = mad(v, WEIGHTS4(weights, row + j * 4, scale[j], zero[j]), sum[j]);
            }
        }
    }
    if (p < M) {
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            STORE4(out, p * OUT_STRIDE + c + j * 4, EPILOGUE(sum[j], p, c + j * 4));
        }
    }
}
