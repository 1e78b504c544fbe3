// One row times a matrix: out[n] = in[:] . W[:][n] + bias[n]; the weights are read once, in order.
// A unit is TILE_N columns. SPLIT sums per column hide the latency of the multiply-adds.
// weights: for each panel of TILE_N columns, the bias and then K rows, [PANELS][1 + K][TILE_N].
// Defines: TILE_N, SPLIT, WEIGHT. Parameters: K, CHANNELS (of the output, padded), IN_STEP (elements from channel to channel).
#define VECTORS (TILE_N / 16)
static void FUNC(const int t, const int nt, __global const float *restrict in,
    __global const uchar *restrict weights, __global float *restrict out PARAMETERS)
{
    for (int panel = FIRST_UNIT(t, nt); panel < FIRST_UNIT(t + 1, nt); panel++) {
        __global const float *head = PANEL_HEAD(weights, panel, K);
        __global const uchar *w = PANEL_ROWS(head);
        float16 sum[SPLIT][VECTORS];
        #pragma unroll
        for (int s = 0; s < SPLIT; s++)
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                sum[s][j] = s == 0 ? load16(head + j * 16) : (float16)0.0f;
        for (int k = 0; k + SPLIT <= K; k += SPLIT)
            #pragma unroll
            for (int s = 0; s < SPLIT; s++) {
                const float16 x = (float16)(in[(k + s) * IN_STEP]);
                #pragma unroll
                for (int j = 0; j < VECTORS; j++)
                    sum[s][j] = x * WEIGHTS16(w, (k + s) * TILE_N + j * 16, head, j * 16) + sum[s][j];
            }
        for (int k = K / SPLIT * SPLIT; k < K; k++) {
            const float16 x = (float16)(in[k * IN_STEP]);
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                sum[0][j] = x * WEIGHTS16(w, k * TILE_N + j * 16, head, j * 16) + sum[0][j];
        }
        #pragma unroll
        for (int j = 0; j < VECTORS; j++) {
            const int c = panel * TILE_N + j * 16;
            float16 total = sum[0][j];
            #pragma unroll
            for (int s = 1; s < SPLIT; s++)
                total += sum[s][j];
            // The last panel may be wider than what is left of the channels.
            if (c < CHANNELS)
                store16(EPILOGUE(total, 0, c), out + c);
        }
    }
}
#undef VECTORS
