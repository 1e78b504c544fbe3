// Matrix products with few rows and an adjoint right side: out[b][i][n] = sum over k of left[b][i][k] * right[b][n][k].
// Both run along k, so nothing is packed: a packed number would be used only M times.
// A unit is 16 columns of one product, all rows. Columns behind N repeat the last one, and are cleared.
// Defines: LEFT(b) and RIGHT(b), generated expressions: where the matrices of batch b begin. Parameters: those of the
// expressions, M, N, K, LEFT_ROW, RIGHT_ROW (elements from row to row, from column to column), OUT_STRIDE, and as a divisor
// BLOCKS (units of a product).
static void FUNC(const int t, const int nt, __global const float *restrict left,
    __global const float *restrict right, __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int batch = QUOTIENT(u, BLOCKS), first = (u - batch * BLOCKS) * 16;
        for (int i = 0; i < M; i++) {
            __global const float *a = left + LEFT(batch) + i * LEFT_ROW;
            __global const float *w = right + RIGHT(batch);
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
            store16(EPILOGUE(mask16(found, first, N), p, first), out + p * OUT_STRIDE + first);
        }
    }
}
