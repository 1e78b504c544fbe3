// Depthwise convolution of int8 with one output for each input channel: exact sums, requantised as LiteRT's reference kernels
// do. A unit is one output row of one image, taken in tiles of TILE pixels and blocks of 64 channels, of which the last ones
// overlap their neighbours. Of four input rows, the bytes of one column are put side by side, an int for each channel; an
// instruction adds the products of four taps to a sum, and every column serves all pixels of the tile whose windows have it.
// It takes unsigned bytes, so 128 is added to the input's; the offset makes up for that. Pixels outside of the image are read
// from `border`, zero points.
// The four vectors that two rounds of unpacking make of 64 channels have in lane 4 * l + i of vector v channel
// 16 * l + 4 * v + i; packing levels puts them back in order. Weights and stage have the same order.
// weights: [BLOCKS][rows of FILTER_H in fours][FILTER_W][4 vectors][16] ints, zero behind the last row.
// stage: for each block the offsets, then by STAGE (its number in stage.py) the rows there, [64].
// Defines: TILE, FILTER_H, FILTER_W, STRIDE_W, STAGE.
// Parameters: BLOCKS, CHANNELS (padded, 64 at least), IN_H, IN_W, IN_STRIDE, OUT_H, OUT_W, OUT_STRIDE, STRIDE_H, DILATION_H,
// PAD_TOP, PAD_LEFT, ZERO_POINT, LOW, HIGH (of the output).
#define COLUMNS ((TILE - 1) * STRIDE_W + FILTER_W)
#define FOURS ((FILTER_H + 3) / 4)
#if STAGE == 2
#define ROWS 5
#elif STAGE == 4
#define ROWS 2
#else
#define ROWS 4
#endif
#ifndef DEPTHWISE_COLUMNS
#define DEPTHWISE_COLUMNS
typedef uchar bytes64 __attribute__((ext_vector_type(64)));
typedef ushort words32 __attribute__((ext_vector_type(32)));
typedef uchar unaligned_bytes64 __attribute__((ext_vector_type(64), aligned(1)));
#define BYTES_BY_TURNS(i) i, 64 + i, 1 + i, 65 + i, 2 + i, 66 + i, 3 + i, 67 + i, \
    4 + i, 68 + i, 5 + i, 69 + i, 6 + i, 70 + i, 7 + i, 71 + i
#define WORDS_BY_TURNS(i) i, 32 + i, 1 + i, 33 + i, 2 + i, 34 + i, 3 + i, 35 + i
// The lower, with 8 the upper half of each sixteen bytes of two vectors by turns; the same of words.
#define UNPACKED_BYTES(a, b, i) __builtin_shufflevector(a, b, \
    BYTES_BY_TURNS(0 + i), BYTES_BY_TURNS(16 + i), BYTES_BY_TURNS(32 + i), BYTES_BY_TURNS(48 + i))
#define UNPACKED_WORDS(a, b, i) __builtin_shufflevector(a, b, \
    WORDS_BY_TURNS(0 + i), WORDS_BY_TURNS(8 + i), WORDS_BY_TURNS(16 + i), WORDS_BY_TURNS(24 + i))
static inline void interleave_rows(int16 *columns, const bytes64 *row)
{
    #pragma unroll
    for (int upper = 0; upper < 2; upper++) {
        words32 first, second;
        if (upper) {
            first = __builtin_astype(UNPACKED_BYTES(row[0], row[1], 8), words32);
            second = __builtin_astype(UNPACKED_BYTES(row[2], row[3], 8), words32);
        } else {
            first = __builtin_astype(UNPACKED_BYTES(row[0], row[1], 0), words32);
            second = __builtin_astype(UNPACKED_BYTES(row[2], row[3], 0), words32);
        }
        columns[2 * upper] = __builtin_astype(UNPACKED_WORDS(first, second, 0), int16);
        columns[2 * upper + 1] = __builtin_astype(UNPACKED_WORDS(first, second, 4), int16);
    }
}
// Stores 64 levels, clamped.
static inline void store_levels64(const int16 *level, const int low, const int high, __global char *to)
{
#if defined(__AVX512BW__)
    typedef char levels64 __attribute__((ext_vector_type(64)));
    const levels64 packed = __builtin_ia32_packsswb512(
        __builtin_ia32_packssdw512(level[0], level[1]), __builtin_ia32_packssdw512(level[2], level[3]));
    const levels64 least = (levels64)(char)low, most = (levels64)(char)high;
    const levels64 clamped = __builtin_elementwise_min(__builtin_elementwise_max(packed, least), most);
    *(__global unaligned_bytes64 *)to = __builtin_astype(clamped, bytes64);
#else
    int lanes[4][4];
    #pragma unroll
    for (int v = 0; v < 4; v++)
        vstore4(as_int4(convert_char16(clamp(level[v], low, high))), 0, lanes[v]);
    #pragma unroll
    for (int i = 0; i < 16; i++)
        vstore4(as_char4(lanes[i % 4][i / 4]), i, to);
#endif
}
#endif

static inline int16 LOCAL_NAME(dot)(int16 sum, int16 bytes, int16 weights)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(bytes), "v"(weights));
    return sum;
}

static void FUNC(const int t, const int nt, __global const char *restrict in, __global const int *restrict weights,
    __global const int *restrict stage, __global const char *restrict border, __global char *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int n = u / OUT_H, y = u % OUT_H * STRIDE_H - PAD_TOP;
        for (int first = 0; first < OUT_W; first += TILE) {
            const int ox = min(first, OUT_W - TILE), x = ox * STRIDE_W - PAD_LEFT;
            __global const char *pixel[FILTER_H][COLUMNS];
            for (int ky = 0; ky < FILTER_H; ky++) {
                const int iy = y + ky * DILATION_H;
                __global const char *row = in + ((long)(n * IN_H + iy) * IN_W + x) * IN_STRIDE;
                for (int i = 0; i < COLUMNS; i++)
                    pixel[ky][i] = (uint)iy < (uint)IN_H && (uint)(x + i) < (uint)IN_W ? row + i * IN_STRIDE : border;
            }
            __global char *to = out + ((long)u * OUT_W + ox) * OUT_STRIDE;
            __global const int16 *w = (__global const int16 *)weights;
            __global const int *head = stage;
            for (int block = 0; block < BLOCKS; block++, head += 64 * ROWS, w += 4 * FOURS * FILTER_W) {
                const int c = min(block * 64, CHANNELS - 64);
                int16 sum[TILE][4];
                #pragma unroll
                for (int i = 0; i < TILE; i++)
                    #pragma unroll
                    for (int v = 0; v < 4; v++)
                        sum[i][v] = *(__global const int16 *)(head + 16 * v);
                #pragma unroll
                for (int i = 0; i < COLUMNS; i++)
                    #pragma unroll
                    for (int four = 0; four < FOURS; four++) {
                        bytes64 row[4];
                        #pragma unroll
                        for (int n = 0; n < 4; n++) {
                            row[n] = (bytes64)(uchar)0;
                            if (4 * four + n < FILTER_H)
                                row[n] = *(__global const unaligned_bytes64 *)(pixel[4 * four + n][i] + c) ^ (uchar)128;
                        }
                        int16 column[4];
                        interleave_rows(column, row);
                        #pragma unroll
                        for (int j = 0; j < TILE; j++) {
                            const int tap = i - j * STRIDE_W;
                            if (tap >= 0 && tap < FILTER_W)
                                #pragma unroll
                                for (int v = 0; v < 4; v++)
                                    sum[j][v] = LOCAL_NAME(dot)(sum[j][v], column[v], w[4 * (four * FILTER_W + tap) + v]);
                        }
                    }
                #pragma unroll
                for (int v = 0; v < 4; v++) {
#if STAGE == 2
                    const Factors factors = factors16(head + 64 + 16 * v, 64);
#endif
                    #pragma unroll
                    for (int i = 0; i < TILE; i++)
#if STAGE == 2
                        sum[i][v] = requantised_once16(as_uint16(sum[i][v]), factors);
#elif STAGE == 4
                        sum[i][v] = requantised_in_floats16(sum[i][v], head + 64 + 16 * v, ZERO_POINT);
#else
                        sum[i][v] = requantised16(sum[i][v], head + 64 + 16 * v, 64) + ZERO_POINT;
#endif
                }
                #pragma unroll
                for (int i = 0; i < TILE; i++)
                    store_levels64(sum[i], LOW, HIGH, to + i * OUT_STRIDE + c);
            }
        }
    }
}
#undef COLUMNS
#undef FOURS
#undef ROWS
