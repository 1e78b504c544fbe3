// Matrix products of int8: exact sums in int32, requantised as LiteRT's reference kernel does. out[b][i][:] is the sum over k
// of (left[b][i][k] - LEFT_ZERO) * (right[b][k][:] - the other zero point), either side broadcast over batches.
// A unit is TILE_M rows by 16 * VECTORS columns of one product; the last tile of rows or columns overlaps its neighbour. An
// instruction, or two of pairs of shorts, multiplies four bytes of a row by the panels of levels_pack.cl.
// stage: for 16 lanes, which are alike, the rows of stage.py.
// Defines: TILE_M, VECTORS, DENSE (1: LEFT_STEP is 1), INSTRUCTION, STAGE (its number in stage.py), and LEFT(b) and RIGHT(b),
// generated expressions: where the matrices of batch b begin. Parameters: those of the expressions, M, K, CHANNELS (columns,
// padded), FOURS (ints of K bytes), LEFT_ROW and LEFT_STEP (from row to row, from k to k + 1), LEFT_ZERO, RIGHT_ZERO (plus
// 128), ZERO_POINT, OUT_STRIDE, and as divisors TILES (units of a product) and ROW_TILES (of a panel).
#define COLUMNS (16 * VECTORS)
static inline int16 LOCAL_NAME(dot)(int16 sum, int16 bytes, int16 levels)
{
#if INSTRUCTION
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(bytes), "v"(levels));
    return sum;
#else
    return ADD_BYTES16(sum, bytes, levels);
#endif
}
// The sum of `count` levels.
static inline int LOCAL_NAME(sum)(__global const char *row, const int count, const int step)
{
    int total = 0, k = 0;
#if DENSE
    int16 wide = (int16)0;
    for (; k < count; k += 16) {
        const int16 lane = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) + k;
        const int16 levels = CONVERT16(int16, LOAD_AS(char16, row + k));
        wide += lane < (int16)count ? levels : (int16)0;
    }
    const int8 eight = wide.lo + wide.hi;
    const int4 four = eight.lo + eight.hi;
    total = four.x + four.y + four.z + four.w;
#endif
    for (; k < count; k++)
        total += row[k * step];
    return total;
}

static void FUNC(const int t, const int nt, __global const char *restrict left, __global const int *restrict panels,
    __global const int *restrict stage, __global char *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int batch = QUOTIENT(u, TILES), tile = u - batch * TILES, panel = QUOTIENT(tile, ROW_TILES);
        const int row = min((tile - panel * ROW_TILES) * TILE_M, M - TILE_M);
        __global const char *a = left + LEFT(batch) + row * LEFT_ROW;
        __global const int *w = panels + RIGHT(batch) + panel * (1 + FOURS) * COLUMNS;
        int16 sum[TILE_M][VECTORS];
        #pragma unroll
        for (int j = 0; j < VECTORS; j++)
            sum[0][j] = LOAD16(int, w + j * 16) + LOAD16(int, stage);
        #pragma unroll
        for (int i = TILE_M - 1; i >= 0; i--) {
            const int apart = (LOCAL_NAME(sum)(a + i * LEFT_ROW, K, LEFT_STEP) - K * LEFT_ZERO) * RIGHT_ZERO;
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                sum[i][j] = sum[0][j] - apart;
        }
        w += COLUMNS;
        for (int k = 0; k < FOURS; k++, w += COLUMNS) {
            int16 b[VECTORS];
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                b[j] = LOAD16(int, w + j * 16);
            #pragma unroll
            for (int i = 0; i < TILE_M; i++) {
#if DENSE
                const int four = *(__global const int *)(a + i * LEFT_ROW + 4 * k);
#else
                // Levels behind the last one meet bytes of zero.
                int four = 0;
                #pragma unroll
                for (int n = 0; n < 4; n++)
                    four |= (int)(uchar)a[i * LEFT_ROW + min(4 * k + n, K - 1) * LEFT_STEP] << 8 * n;
#endif
                #pragma unroll
                for (int j = 0; j < VECTORS; j++)
                    sum[i][j] = LOCAL_NAME(dot)(sum[i][j], b[j], (int16)four);
            }
        }
        __global char *to = out + ((long)batch * M + row) * OUT_STRIDE + min(panel * COLUMNS, CHANNELS - COLUMNS);
        int16 level[TILE_M * VECTORS];
        __global char *place[TILE_M * VECTORS];
        #pragma unroll
        for (int n = 0; n < TILE_M * VECTORS; n++) {
            const int16 found = sum[n / VECTORS][n % VECTORS];
#if STAGE == 2
            level[n] = requantised_once16(as_uint16(found), factors16(stage + 16, 16));
#else
            level[n] = requantised16(found, stage + 16, 16) + ZERO_POINT;
#endif
            place[n] = to + n / VECTORS * OUT_STRIDE + n % VECTORS * 16;
        }
        #pragma unroll
        for (int n = 0; n + 4 <= TILE_M * VECTORS; n += 4)
            store_levels4(level[n], level[n + 1], level[n + 2], level[n + 3], -128, 127, 0, place[n], place[n + 1],
                place[n + 2], place[n + 3]);
        #pragma unroll
        for (int n = TILE_M * VECTORS & ~3; n < TILE_M * VECTORS; n++)
            STORE16(char, convert_char16(clamp(level[n], -128, 127)), place[n]);
    }
}
#undef COLUMNS
