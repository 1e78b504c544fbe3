// Products where the work-items of a group are lanes of a processor's vectors: out[p][n] = bias[n] + sum over the window
// of pixel p of left * right. A work-item has PIXELS pixels, ITEMS apart, by 16 columns, the same for all of a group: a
// compiler may load each weight once for all lanes, and else it serves PIXELS. Nothing is shared and none waits.
// k counts the taps of the window, and their channels, padded to DEPTH. Rows of a matrix are an image with a window of 1 x 1.
// right: K rows of CHANNELS columns of the type WEIGHT.
// VECTOR_LOADS: four numbers along k lie side by side in an aligned place; else they are LEFT_STEP apart. TAIL: the last
// four may be fewer.
// Defines: PIXELS, ITEMS, VECTOR_LOADS, TAIL, WEIGHT.
// Parameters: M, N, K, CHANNELS (N, padded), IN_CHANNELS, LEFT_ROW, LEFT_STEP, OUT_STRIDE, IN_H, IN_W, STRIDE_H, STRIDE_W,
// DILATION_H, DILATION_W, PAD_TOP, PAD_LEFT, and as divisors OUT_PIXELS, OUT_W, FILTER_W, DEPTH.
#define STORE_RESULT(column, value) { \
    const int c = first_n + column; \
    STORE4(out, p * OUT_STRIDE + c, EPILOGUE(mask4(value, c, N), p, c)); \
}
static void FUNC(INPUT(left), INPUT(right), OUTPUT(out) PARAMETERS)
{
    const int first_n = GROUP_ID(0) * 16;
    const int first_m = GROUP_ID(1) * (ITEMS * PIXELS) + LOCAL_ID(0);
    int base[PIXELS];
    int top[PIXELS];
    int before[PIXELS];
    #pragma unroll
    for (int i = 0; i < PIXELS; i++) {
        const int m = min(first_m + i * ITEMS, M - 1);
        PLACE_OF_PIXEL(m, image, oy, ox);
        base[i] = image * IN_H;
        top[i] = oy * STRIDE_H - PAD_TOP;
        before[i] = ox * STRIDE_W - PAD_LEFT;
    }
    float4 sum[4 * PIXELS];
    float4 scale[4];
    float4 zero[4];
    #pragma unroll
    for (int j = 0; j < 4; j++) {
        scale[j] = SCALE4(right, first_n + j * 4);
        zero[j] = ZERO4(right, first_n + j * 4);
        const float4 bias = LOAD4(right, first_n + j * 4);
        #pragma unroll
        for (int i = 0; i < PIXELS; i++) {
            sum[i * 4 + j] = bias;
        }
    }
    for (int k0 = 0; k0 < K; k0 += DEPTH) {
        const int tap = QUOTIENT(k0, DEPTH);
        const int row = QUOTIENT(tap, FILTER_W);
        int from[PIXELS];
        bool is_inside[PIXELS];
        #pragma unroll
        for (int i = 0; i < PIXELS; i++) {
            const int y = top[i] + row * DILATION_H;
            const int x = before[i] + (tap - row * FILTER_W) * DILATION_W;
            is_inside[i] = y >= 0 && y < IN_H && x >= 0 && x < IN_W;
            // What is loaded from elsewhere in place of what lies outside becomes zero.
            from[i] = is_inside[i] ? ((base[i] + y) * IN_W + x) * LEFT_ROW : 0;
        }
        for (int k = 0; k < IN_CHANNELS; k += 4) {
            float4 v[PIXELS];
            #pragma unroll
            for (int i = 0; i < PIXELS; i++) {
#if VECTOR_LOADS
                float4 loaded = LOAD4(left, from[i] + k);
#else
                const int last = IN_CHANNELS - 1;
                float4 loaded = VEC4(LOAD(left, from[i] + k * LEFT_STEP), LOAD(left, from[i] + min(k + 1, last) * LEFT_STEP),
                    LOAD(left, from[i] + min(k + 2, last) * LEFT_STEP), LOAD(left, from[i] + min(k + 3, last) * LEFT_STEP));
#endif
#if TAIL
                loaded = mask4(loaded, k, IN_CHANNELS);
#endif
                v[i] = is_inside[i] ? loaded : SPLAT4(0.0f);
            }
            const int at = (k0 + k) * CHANNELS + first_n;
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                const float4 b0 = WEIGHTS4(right, at + j * 4, scale[j], zero[j]);
                const float4 b1 = WEIGHTS4(right, at + CHANNELS + j * 4, scale[j], zero[j]);
                const float4 b2 = WEIGHTS4(right, at + 2 * CHANNELS + j * 4, scale[j], zero[j]);
                const float4 b3 = WEIGHTS4(right, at + 3 * CHANNELS + j * 4, scale[j], zero[j]);
                #pragma unroll
                for (int i = 0; i < PIXELS; i++) {
                    sum[i * 4 + j] = mad(SPLAT4(v[i].x), b0, sum[i * 4 + j]);
                    sum[i * 4 + j] = mad(SPLAT4(v[i].y), b1, sum[i * 4 + j]);
                    sum[i * 4 + j] = mad(SPLAT4(v[i].z), b2, sum[i * 4 + j]);
                    sum[i * 4 + j] = mad(SPLAT4(v[i].w), b3, sum[i * 4 + j]);
                }
            }
        }
    }
    // A loop, since its body is long where compilers store lane by lane: to choose the sums costs less than to compile it
    // for each of them.
    for (int turn = 0; turn < PIXELS; turn++) {
        float4 s0 = sum[0];
        float4 s1 = sum[1];
        float4 s2 = sum[2];
        float4 s3 = sum[3];
        #pragma unroll
        for (int i = 1; i < PIXELS; i++) {
            const float4 t0 = sum[i * 4];
            const float4 t1 = sum[i * 4 + 1];
            const float4 t2 = sum[i * 4 + 2];
            const float4 t3 = sum[i * 4 + 3];
            s0 = i == turn ? t0 : s0;
            s1 = i == turn ? t1 : s1;
            s2 = i == turn ? t2 : s2;
            s3 = i == turn ? t3 : s3;
        }
        const int p = first_m + turn * ITEMS;
        if (p < M) {
            STORE_RESULT(0, s0)
            STORE_RESULT(4, s1)
            STORE_RESULT(8, s2)
            STORE_RESULT(12, s3)
        }
    }
}
#undef STORE_RESULT
