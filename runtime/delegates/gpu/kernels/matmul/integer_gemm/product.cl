// Convolution with any window, and matrix products, of int8 or uint8: exact sums in int32, requantised as LiteRT's reference
// kernels or XNNPACK do, or with STAGE REALS the real numbers for which they stand, of an input from quantize_rows.cl. A unit
// is TILE_M consecutive output pixels by 16 * VECTORS channels; the last tile and the last panel overlap their neighbours.
// Four neighbouring channels of a pixel are one int; an instruction, or two of pairs of shorts, multiplies them by
// the weights of 16 outputs. It takes unsigned bytes, so 128 is added to the input's; the offset makes up for that, for
// the input's zero point and for the bias. Pixels outside of the image are read from `border`, zero points.
// Of uint8, weights and outputs are levels less 128. Where the weights have a zero point then, CENTRED, the bytes of a window
// are added up too, by a 1 for each channel that stands BORDER bytes behind the border.
// weights: [PANELS][FILTER_H * FILTER_W * DEPTH][16 * VECTORS] ints of four weights. NIBBLES: half as many; the low halves of
// the bytes are an int's weights, the high ones the next int's. They are multiplied in the high half of a byte, where they
// have a sign: 16 times the number. BLOCKED: of POINTS, the depth in BLOCKS with a scale for each output, as fp16 in front of
// a block's weights.
// stage: for each panel the offsets, then by STAGE the rows of stage.py; with REALS the sums of the weights, and as floats
// their scales and the bias.
// scales, with REALS: for each image its scale, and the zero point plus 128; images have their own BORDER bytes of `border`.
// Defines: TILE_M, VECTORS, INSTRUCTION, STAGE (its number in stage.py), NIBBLES, BLOCKED, POINTS (1: pixel p of the output is
// of pixel p of the input alone), DIRECT (1: input is multiplied as it lies in memory, because it needs no preparation or has
// few channels), KEPT (1: of POINTS, not DIRECT, at most PART ints deep: units go through the panels of a tile, whose input is
// prepared for the first of them), SIGN (-128 of uint8, else 0), CENTRED.
// Parameters: PIXELS, TILES, CHANNELS (of the output, padded), DEPTH (ints of a pixel), PANEL_INTS (of a panel's weights),
// IN_H, IN_W, IN_STRIDE (ints), OUT_H, OUT_W, OUT_STRIDE, FILTER_H, FILTER_W, STRIDE_H, STRIDE_W, DILATION_H, DILATION_W,
// PAD_TOP, PAD_LEFT; ZERO_POINT, LOW, HIGH (of the output), with CENTRED WEIGHT_ZERO and BORDER, or with REALS IMAGE (pixels of
// an image of the output) and BORDER.
#define DOUBLES 0
#define SHIFTS 1
#define FACTORS 2
#define REALS 3
#define FLOATS 4
#if STAGE == DOUBLES
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
// Joined with the subtraction below, the product would not be rounded.
#pragma OPENCL FP_CONTRACT OFF
#define ROWS 3
#elif STAGE == REALS
#define ROWS 3
#elif STAGE == FLOATS
#define ROWS 2
#elif STAGE == SHIFTS
#define ROWS 4
#else
#define ROWS 5
#endif
#define COLUMNS (16 * VECTORS)
// Ints of a pixel that are prepared at a time, a multiple of 16.
#define PART 64
// The bytes of levels that have a sign, 128 added.
#define UNSIGNED(x) (STAGE == REALS || SIGN ? (x) : (x) ^ (int)0x80808080)

static inline int16 LOCAL_NAME(dot)(int16 sum, int bytes, int16 weights)
{
#if INSTRUCTION
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"((int16)(bytes)), "v"(weights));
    return sum;
#else
    return ADD_BYTES16(sum, bytes, weights);
#endif
}

#if CENTRED
// The bytes of four lanes times those of `ones`, for `count` ints.
static inline int4 LOCAL_NAME(added)(int4 sum, __global const int *bytes, __global const int *ones, const int count)
{
    for (int k = 0; k < count; k += 4) {
        const int4 a = vload4(0, bytes + k), b = vload4(0, ones + k);
#if INSTRUCTION
        __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
#else
        for (int shift = 0; shift < 32; shift += 8)
            sum += (a >> shift & 255) * (b >> shift & 255);
#endif
    }
    return sum;
}
#endif

#if STAGE != REALS
// Levels of column j of a panel on.
static inline int16 LOCAL_NAME(levels)(int16 sum, __global const int *restrict stage, const int j, const int zero_point)
{
#if STAGE == DOUBLES
    const double16 x = convert_double16(sum) * *(__global const double16 *)(stage + COLUMNS + 2 * j);
    const double16 whole = trunc(x), rounded = whole + trunc((x - whole) * 2.0);
    return convert_int16(clamp(rounded, (double16)-1e9, (double16)1e9)) + zero_point;
#elif STAGE == SHIFTS
    return requantised16(sum, stage + COLUMNS + j, COLUMNS) + zero_point;
#elif STAGE == FLOATS
    return requantised_in_floats16(sum, stage + COLUMNS + j, zero_point);
#else
    return requantised_once16(as_uint16(sum), factors16(stage + COLUMNS + j, COLUMNS));
#endif
}
#endif

static void FUNC(const int t, const int nt, __global const char *restrict in, __global const char *restrict weights,
    __global const int *restrict stage, __global const char *restrict border,
#if STAGE == REALS
    __global const float *restrict scales, __global float *restrict out PARAMETERS)
#else
    __global char *restrict out PARAMETERS)
#endif
{
#if !DIRECT
    // Bytes, or as pairs of shorts the even ones of each int, and behind all of them the odd ones.
    int input[TILE_M][INSTRUCTION ? PART : 2 * PART] __attribute__((aligned(64)));
#endif
#if KEPT
    const int panels = (CHANNELS + COLUMNS - 1) / COLUMNS;
    int kept = -1;
#endif
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
#if KEPT
        const int tile = u / panels, panel = u - tile * panels;
#else
        const int panel = u / TILES, tile = u - panel * TILES;
#endif
        const int p = min(tile * TILE_M, PIXELS - TILE_M);
        __global const int *head = stage + (long)panel * ROWS * COLUMNS;
        __global const int *w = (__global const int *)weights + (long)panel * PANEL_INTS;
        int16 sum[TILE_M][VECTORS];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++)
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                sum[i][j] = STAGE == REALS ? (int16)0 : *(__global const int16 *)(head + j * 16);
#if CENTRED
        int4 bytes_of[TILE_M];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++)
            bytes_of[i] = (int4)0;
#endif
#if BLOCKED
        float16 total[TILE_M][VECTORS];
        int zero[TILE_M];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++) {
            zero[i] = as_int(scales[2 * QUOTIENT(p + i, IMAGE) + 1]);
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                total[i][j] = (float16)0.0f;
        }
#endif
#if POINTS
        {
            {
                __global const int *a[TILE_M];
                #pragma unroll
                for (int i = 0; i < TILE_M; i++)
                    a[i] = (__global const int *)in + (long)(p + i) * IN_STRIDE;
#else
        int oy = p / OUT_W, ox = p - oy * OUT_W, image = oy / OUT_H;
        oy -= image * OUT_H;
        int y[TILE_M], x[TILE_M];
        long start[TILE_M];
        __global const char *outside[TILE_M];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++) {
            y[i] = oy * STRIDE_H - PAD_TOP;
            x[i] = ox * STRIDE_W - PAD_LEFT;
            start[i] = ((long)(image * IN_H + y[i]) * IN_W + x[i]) * IN_STRIDE;
#if STAGE == REALS
            outside[i] = border + image * BORDER;
#else
            outside[i] = border;
#endif
            const int ends_row = ++ox == OUT_W, ends_image = ends_row & (oy + 1 == OUT_H);
            ox = ends_row ? 0 : ox;
            oy = ends_image ? 0 : oy + ends_row;
            image += ends_image;
        }
        // Pixels of one line whose windows lie inside of the image are read without further questions.
        const int right = x[0] + (TILE_M - 1) * STRIDE_W;
        const bool is_whole = y[0] == y[TILE_M - 1] && x[TILE_M - 1] == right && min(y[0], x[0]) >= 0
            && y[0] + (FILTER_H - 1) * DILATION_H < IN_H && right + (FILTER_W - 1) * DILATION_W < IN_W;
        for (int ky = 0; ky < FILTER_H; ky++)
            for (int kx = 0; kx < FILTER_W; kx++) {
                const int dy = ky * DILATION_H, dx = kx * DILATION_W;
                __global const int *a[TILE_M];
                __global const int *first_pixel = (__global const int *)in + start[0] + ((long)dy * IN_W + dx) * IN_STRIDE;
                #pragma unroll
                for (int i = 0; i < TILE_M; i++) {
                    if (is_whole) {
                        a[i] = first_pixel + i * STRIDE_W * IN_STRIDE;
                        continue;
                    }
                    const bool inside = (uint)(y[i] + dy) < (uint)IN_H && (uint)(x[i] + dx) < (uint)IN_W;
                    const long place = start[i] + ((long)dy * IN_W + dx) * IN_STRIDE;
                    a[i] = inside ? (__global const int *)in + place : (__global const int *)outside[i];
                }
#endif
#if CENTRED
                #pragma unroll
                for (int i = 0; i < TILE_M; i++)
                    bytes_of[i] = LOCAL_NAME(added)(bytes_of[i], a[i], (__global const int *)(border + BORDER), DEPTH);
#endif
#if BLOCKED
                for (int first = 0; first < DEPTH; first += DEPTH / BLOCKS) {
                    const int end = first + DEPTH / BLOCKS;
                    float16 scale[VECTORS];
                    int16 weight_sum[VECTORS];
                    #pragma unroll
                    for (int j = 0; j < VECTORS; j++) {
                        scale[j] = levels16_F16((__global const uchar *)w, j * 16);
                        weight_sum[j] = (int16)0;
                        #pragma unroll
                        for (int i = 0; i < TILE_M; i++)
                            sum[i][j] = (int16)0;
                    }
                    w += COLUMNS / 2;
#elif DIRECT
                {
                    const int first = 0, end = DEPTH;
#else
                // A part of the tile's input, prepared once for all columns.
                for (int first = 0; first < DEPTH; first += PART) {
                    const int end = min(first + PART, DEPTH);
#if KEPT
                    if (tile != kept)
#endif
                    #pragma unroll
                    for (int i = 0; i < TILE_M; i++) {
                        int c = 0;
                        for (; c + 16 <= end - first; c += 16) {
                            const int16 bytes = UNSIGNED(LOAD16(int, a[i] + first + c));
                            *(int16 *)&input[i][c] = INSTRUCTION ? bytes : EVEN_BYTES(bytes);
#if !INSTRUCTION
                            *(int16 *)&input[i][PART + c] = ODD_BYTES(bytes);
#endif
                        }
                        for (; c < end - first; c += 4) {
                            const int4 bytes = UNSIGNED(vload4(0, a[i] + first + c));
                            *(int4 *)&input[i][c] = INSTRUCTION ? bytes : EVEN_BYTES(bytes);
#if !INSTRUCTION
                            *(int4 *)&input[i][PART + c] = ODD_BYTES(bytes);
#endif
                        }
                    }
#endif
                    for (int k = first; k < end; k += 1 + NIBBLES, w += COLUMNS)
                    #pragma unroll
                    for (int part = 0; part <= NIBBLES; part++) {
                        int16 b[VECTORS];
                        #pragma unroll
                        for (int j = 0; j < VECTORS; j++) {
                            b[j] = LOAD16(int, w + j * 16);
#if NIBBLES
                            b[j] = (part ? b[j] : b[j] << 4) & (int)0xf0f0f0f0;
#endif
#if BLOCKED
                            weight_sum[j] = LOCAL_NAME(dot)(weight_sum[j], 0x01010101, b[j]);
#endif
                        }
                        #pragma unroll
                        for (int i = 0; i < TILE_M; i++) {
#if DIRECT
                            const int bytes = UNSIGNED(a[i][k + part]);
#else
                            const int bytes = input[i][k + part - first];
#endif
                            #pragma unroll
                            for (int j = 0; j < VECTORS; j++)
#if DIRECT || INSTRUCTION
                                sum[i][j] = LOCAL_NAME(dot)(sum[i][j], bytes, b[j]);
#else
                                sum[i][j] = add_pairs16(
                                    add_pairs16(sum[i][j], (int16)(bytes), even_levels16(b[j])),
                                    (int16)(input[i][PART + k + part - first]), odd_levels16(b[j]));
#endif
                        }
                    }
#if BLOCKED
                    #pragma unroll
                    for (int i = 0; i < TILE_M; i++)
                        #pragma unroll
                        for (int j = 0; j < VECTORS; j++)
                            total[i][j] += CONVERT16(float16, sum[i][j] - zero[i] * weight_sum[j]) * scale[j];
#endif
                }
            }
#if POINTS
        }
#endif
#if KEPT
        kept = tile;
#endif
        const int channel = min(panel * COLUMNS, CHANNELS - COLUMNS);
#if STAGE == REALS
        #pragma unroll
        for (int i = 0; i < TILE_M; i++) {
            __global const float *row = scales + 2 * QUOTIENT(p + i, IMAGE);
            #pragma unroll
            for (int j = 0; j < VECTORS; j++) {
                __global const float *column = (__global const float *)(head + COLUMNS + j * 16);
#if BLOCKED
                const float16 level = total[i][j];
#else
                const float16 level =
                    CONVERT16(float16, sum[i][j] - as_int(row[1]) * *(__global const int16 *)(head + j * 16));
#endif
                const float16 real = level * (load16(column) * row[0]) + load16(column + COLUMNS);
                store16(EPILOGUE(real, (p + i), (channel + j * 16)), out + (long)(p + i) * OUT_STRIDE + channel + j * 16);
            }
        }
#else
#if CENTRED
        #pragma unroll
        for (int i = 0; i < TILE_M; i++) {
            const int apart = WEIGHT_ZERO * (bytes_of[i].x + bytes_of[i].y + bytes_of[i].z + bytes_of[i].w);
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                sum[i][j] -= apart;
        }
#endif
        __global char *to = out + (long)p * OUT_STRIDE + channel;
        int16 level[TILE_M * VECTORS];
        __global char *place[TILE_M * VECTORS];
        #pragma unroll
        for (int n = 0; n < TILE_M * VECTORS; n++) {
            level[n] = LOCAL_NAME(levels)(sum[n / VECTORS][n % VECTORS], head, n % VECTORS * 16, ZERO_POINT);
            place[n] = to + n / VECTORS * OUT_STRIDE + n % VECTORS * 16;
        }
        #pragma unroll
        for (int n = 0; n + 4 <= TILE_M * VECTORS; n += 4)
            store_levels4(level[n], level[n + 1], level[n + 2], level[n + 3], LOW, HIGH, SIGN, place[n], place[n + 1],
                place[n + 2], place[n + 3]);
        #pragma unroll
        for (int n = TILE_M * VECTORS & ~3; n < TILE_M * VECTORS; n++)
            STORE16(char, convert_char16(clamp(level[n], LOW, HIGH) ^ SIGN), place[n]);
#endif
    }
}
#undef COLUMNS
#undef PART
#undef UNSIGNED
#undef ROWS
#undef DOUBLES
#undef SHIFTS
#undef FACTORS
#undef REALS
#undef FLOATS
