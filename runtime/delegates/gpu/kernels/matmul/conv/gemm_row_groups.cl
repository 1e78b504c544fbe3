// A product of few rows in work-groups: 16 vectors of four columns by 16 ranges of k, whose sums meet in local memory.
// Nothing is used twice, so memory bounds it: the 16 work-items of a range read a row of the weights in one run.
// right: K rows of CHANNELS columns of the type WEIGHT. The second dimension of the groups is the row, the third a range of
// SPLIT_K k, whose sums go to scratch memory where SPLIT is 1.
// Defines: SPLIT, WEIGHT. Local: partial [256], of float4.
// Parameters: M, N, K, CHANNELS, LEFT_ROW, LEFT_STEP, OUT_STRIDE, SPLIT_K.
static void FUNC(INPUT(left), INPUT(right), OUTPUT(out) PARAMETERS)
{
    const int lx = LOCAL_ID(0);
    const int ly = LOCAL_ID(1);
    const int item = ly * 16 + lx;
    const int c = (GROUP_ID(0) * 16 + lx) * 4;
    const int m = GROUP_ID(1);
    const int first_k = GROUP_ID(2) * SPLIT_K;
    const int last_k = min(first_k + SPLIT_K, K);
    float4 sum = SPLAT4(0.0f);
    if (c < CHANNELS) {
        const float4 scale = SCALE4(right, c);
        const float4 zero = ZERO4(right, c);
        for (int k = first_k + ly; k < last_k; k += 16) {
            sum = LOAD(left, m * LEFT_ROW + k * LEFT_STEP) * WEIGHTS4(right, k * CHANNELS + c, scale, zero) + sum;
        }
    }
    partial[item] = sum;
    JOIN_ITEMS(partial, item, ly, 16, 16, ADDED)
    if (ly == 0 && c < CHANNELS) {
#if SPLIT
        STORE4(out, (GROUP_ID(2) * M + m) * CHANNELS + c, partial[item]);
#else
        const float4 v = mask4(partial[item] + LOAD4(right, c), c, N);
        STORE4(out, m * OUT_STRIDE + c, EPILOGUE(v, m, c));
#endif
    }
}
