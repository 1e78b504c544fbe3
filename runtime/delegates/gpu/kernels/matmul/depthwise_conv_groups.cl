// Depthwise convolution in work-groups: a group has a tile of output pixels by 16 channels of one image. It copies the patch
// that the tile's windows cover to local memory, where every input serves all windows that it lies in.
// weights: a row of CHANNELS for each tap, of the type WEIGHT.
// Defines: WEIGHT.
// Local: patch [the largest patch], of float4.
// Parameters: IN_H, IN_W, IN_STRIDE, OUT_H, OUT_W, OUT_STRIDE, PAD_TOP, PAD_LEFT, FILTER_H, FILTER_W, STRIDE_H, STRIDE_W,
// DILATION_H, DILATION_W, CHANNELS (padded), TILE_H, PATCH_H, and as divisors TILE_W, PATCH_W, TILES_DOWN (of an image).
static void FUNC(INPUT(in), INPUT(weights), OUTPUT(out) PARAMETERS)
{
    const int item = LOCAL_ID(0);
    const int image = QUOTIENT(GROUP_ID(1), TILES_DOWN);
    const int oy = (GROUP_ID(1) - image * TILES_DOWN) * TILE_H;
    const int ox = GROUP_ID(0) * TILE_W;
    const int channel = GROUP_ID(2) * 16;
    const int top = oy * STRIDE_H - PAD_TOP;
    const int left = ox * STRIDE_W - PAD_LEFT;
    for (int i = item; i < PATCH_H * PATCH_W * 4; i += 256) {
        const int py = QUOTIENT(i / 4, PATCH_W);
        const int y = top + py;
        const int x = left + i / 4 - py * PATCH_W;
        float4 v = SPLAT4(0.0f);
        if (y >= 0 && y < IN_H && x >= 0 && x < IN_W) {
            v = LOAD4(in, ((image * IN_H + y) * IN_W + x) * IN_STRIDE + channel + i % 4 * 4);
        }
        patch[i] = v;
    }
    BARRIER();
    const int ty = QUOTIENT(item / 4, TILE_W);
    const int tx = item / 4 - ty * TILE_W;
    const int c = channel + item % 4 * 4;
    if (ty < TILE_H && oy + ty < OUT_H && ox + tx < OUT_W) {
        const float4 scale = SCALE4(weights, c);
        const float4 zero = ZERO4(weights, c);
        float4 sum = LOAD4(weights, c);
        for (int fy = 0; fy < FILTER_H; fy++) {
            const int row = (ty * STRIDE_H + fy * DILATION_H) * PATCH_W + tx * STRIDE_W;
            for (int fx = 0; fx < FILTER_W; fx++) {
                const float4 weight = WEIGHTS4(weights, (fy * FILTER_W + fx) * CHANNELS + c, scale, zero);
                sum = patch[(row + fx * DILATION_W) * 4 + item % 4] * weight + sum;
            }
        }
        const int p = (image * OUT_H + oy + ty) * OUT_W + ox + tx;
        STORE4(out, p * OUT_STRIDE + c, EPILOGUE(sum, p, c));
    }
}
