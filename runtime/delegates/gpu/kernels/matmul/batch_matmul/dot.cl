// Matrix products with few rows and an adjoint right side: out[b][i][n] = sum over k of left[b][i][k] * right[b][n][k].
// Both run along k, so nothing is packed: a packed number would be used only M times.
// A unit is 16 columns of one product, all rows. Columns behind N repeat the last one, and are cleared.
// Defines: M, N, K, LEFT_ROW, RIGHT_ROW (elements from row to row, from column to column), OUT_STRIDE, BATCH1 and BATCH2
// (extents of the last two of three batch dimensions), LEFT_BATCHd and RIGHT_BATCHd (elements from one batch to the next
// in dimension d, 0: broadcast).
#define BLOCKS ((N + 15) / 16)
#define MATRIX(side, b) \
    ((b) / (BATCH1 * BATCH2) * side##0 + (b) / BATCH2 % BATCH1 * side##1 + (b) % BATCH2 * side##2)
static void FUNC(const int t, const int nt, __global const float *restrict left,
    __global const float *restrict right, __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int batch = u / BLOCKS, first = u % BLOCKS * 16;
        for (int i = 0; i < M; i++) {
            __global const float *a = left + MATRIX(LEFT_BATCH, batch) + i * LEFT_ROW;
            __global const float *w = right + MATRIX(RIGHT_BATCH, batch);
            float16 sum[16];
            #pragma unroll
            for (int j = 0; j < 16; j++)
                sum[j] = (float16)0.0f;
            for (int k = 0; k + 16 <= K; k += 16) {
                const float16 x = load16(a + k);
                #pragma unroll
                for (int j = 0; j < 16; j++)
                    sum[j] = x * load16(w + min(first + j, N - 1) * RIGHT_ROW + k) + sum[j];
            }
            float total[16];
            #pragma unroll
            for (int j = 0; j < 16; j++) {
                total[j] = sum_of16(sum[j]);
                for (int k = K / 16 * 16; k < K; k++)
                    total[j] += a[k] * w[min(first + j, N - 1) * RIGHT_ROW + k];
            }
            const float16 found = (float16)(total[0], total[1], total[2], total[3], total[4], total[5], total[6],
                total[7], total[8], total[9], total[10], total[11], total[12], total[13], total[14], total[15]);
            const int p = batch * M + i;
#if N % 16
            store16(EPILOGUE(mask16(found, first, N), p, first), out + p * OUT_STRIDE + first);
#else
            store16(EPILOGUE(found, p, first), out + p * OUT_STRIDE + first);
#endif
        }
    }
}
#undef BLOCKS
#undef MATRIX
