// Convolution with any window, and matrix products, of int8: exact sums in int32, requantised as LiteRT's reference
// kernels do. A unit is TILE_M consecutive output pixels by 16 * VECTORS channels; the last tile and the last panel overlap
// their neighbours.
// Four neighbouring channels of a pixel are one int; an instruction, or the same in plain integers, multiplies them by
// the weights of 16 outputs. It takes unsigned bytes, so 128 is added to the input's; the offset makes up for that, for
// the input's zero point and for the bias. Pixels outside of the image are read from `border`, zero points.
// weights: [PANELS][FILTER_H * FILTER_W * DEPTH][16 * VECTORS] ints of four weights.
// stage: for each panel the offsets, then by STAGE the rows of stage.py: DOUBLES, SHIFTS or FACTORS.
// Defines: TILE_M, VECTORS, INSTRUCTION, STAGE, POINTS (1: pixel p of the output is of pixel p of the input alone).
// Parameters: PIXELS, TILES, CHANNELS (of the output, padded), DEPTH (ints of a pixel), IN_H, IN_W, IN_STRIDE (ints), OUT_H,
// OUT_W, OUT_STRIDE, FILTER_H, FILTER_W, STRIDE_H, STRIDE_W, DILATION_H, DILATION_W, PAD_TOP, PAD_LEFT, ZERO_POINT, LOW, HIGH
// (of the output).
#define DOUBLES 0
#define SHIFTS 1
#define FACTORS 2
#if STAGE == DOUBLES
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
// Joined with the subtraction below, the product would not be rounded.
#pragma OPENCL FP_CONTRACT OFF
#define ROWS 3
#elif STAGE == SHIFTS
#define ROWS 4
#else
#define ROWS 5
#endif
#define COLUMNS (16 * VECTORS)

static inline int16 LOCAL_NAME(dot)(int16 sum, int16 bytes, int16 weights)
{
#if INSTRUCTION
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(bytes), "v"(weights));
    return sum;
#else
    const int16 a = (bytes & 255) * (weights << 24 >> 24), b = (bytes >> 8 & 255) * (weights << 16 >> 24);
    const int16 c = (bytes >> 16 & 255) * (weights << 8 >> 24), d = (bytes >> 24 & 255) * (weights >> 24);
    return sum + ((a + b) + (c + d));
#endif
}

// Four bytes in every lane, 128 more each.
static inline int16 LOCAL_NAME(spread)(__global const int *bytes)
{
#if INSTRUCTION
    // The compiler would add before it spreads, and take the number through a register of integers.
    int16 spread;
    __asm__("vpbroadcastd %1, %0" : "=v"(spread) : "m"(*bytes));
    return spread ^ (int16)(int)0x80808080;
#else
    return (int16)(*bytes ^ (int)0x80808080);
#endif
}

// Levels of column j of a panel on.
static inline int16 LOCAL_NAME(levels)(int16 sum, __global const int *restrict stage, const int j, const int zero_point)
{
#if STAGE == DOUBLES
    const double16 x = convert_double16(sum) * *(__global const double16 *)(stage + COLUMNS + 2 * j);
    const double16 whole = trunc(x), rounded = whole + trunc((x - whole) * 2.0);
    return convert_int16(clamp(rounded, (double16)-1e9, (double16)1e9)) + zero_point;
#elif STAGE == SHIFTS
    return requantised16(sum, stage + COLUMNS + j, COLUMNS) + zero_point;
#else
    return requantised_once16(as_uint16(sum), factors16(stage + COLUMNS + j, COLUMNS));
#endif
}

static void FUNC(const int t, const int nt, __global const char *restrict in, __global const char *restrict weights,
    __global const int *restrict stage, __global const char *restrict border, __global char *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int panel = u / TILES, p = min(u % TILES * TILE_M, PIXELS - TILE_M);
        __global const int *head = stage + (long)panel * ROWS * COLUMNS;
        __global const int *w = (__global const int *)weights + (long)panel * FILTER_H * FILTER_W * DEPTH * COLUMNS;
        int16 sum[TILE_M][VECTORS];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++)
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                sum[i][j] = *(__global const int16 *)(head + j * 16);
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
        #pragma unroll
        for (int i = 0; i < TILE_M; i++) {
            y[i] = oy * STRIDE_H - PAD_TOP;
            x[i] = ox * STRIDE_W - PAD_LEFT;
            start[i] = ((long)(image * IN_H + y[i]) * IN_W + x[i]) * IN_STRIDE;
            const int ends_row = ++ox == OUT_W, ends_image = ends_row & (oy + 1 == OUT_H);
            ox = ends_row ? 0 : ox;
            oy = ends_image ? 0 : oy + ends_row;
            image += ends_image;
        }
        for (int ky = 0; ky < FILTER_H; ky++)
            for (int kx = 0; kx < FILTER_W; kx++) {
                const int dy = ky * DILATION_H, dx = kx * DILATION_W;
                __global const int *a[TILE_M];
                #pragma unroll
                for (int i = 0; i < TILE_M; i++) {
                    const bool inside = (uint)(y[i] + dy) < (uint)IN_H && (uint)(x[i] + dx) < (uint)IN_W;
                    const long place = start[i] + ((long)dy * IN_W + dx) * IN_STRIDE;
                    a[i] = inside ? (__global const int *)in + place : (__global const int *)border;
                }
#endif
                for (int k = 0; k < DEPTH; k++) {
                    int16 b[VECTORS];
                    #pragma unroll
                    for (int j = 0; j < VECTORS; j++)
                        b[j] = *(__global const int16 *)(w + (long)k * COLUMNS + j * 16);
                    #pragma unroll
                    for (int i = 0; i < TILE_M; i++) {
                        const int16 bytes = LOCAL_NAME(spread)(a[i] + k);
                        #pragma unroll
                        for (int j = 0; j < VECTORS; j++)
                            sum[i][j] = LOCAL_NAME(dot)(sum[i][j], bytes, b[j]);
                    }
                }
                w += (long)DEPTH * COLUMNS;
            }
#if POINTS
        }
#endif
        __global char *to = out + (long)p * OUT_STRIDE + min(panel * COLUMNS, CHANNELS - COLUMNS);
        int16 level[TILE_M * VECTORS];
        __global char *place[TILE_M * VECTORS];
        #pragma unroll
        for (int n = 0; n < TILE_M * VECTORS; n++) {
            level[n] = LOCAL_NAME(levels)(sum[n / VECTORS][n % VECTORS], head, n % VECTORS * 16, ZERO_POINT);
            place[n] = to + n / VECTORS * OUT_STRIDE + n % VECTORS * 16;
        }
        #pragma unroll
        for (int n = 0; n + 4 <= TILE_M * VECTORS; n += 4)
            store_levels4(level[n], level[n + 1], level[n + 2], level[n + 3], LOW, HIGH, place[n], place[n + 1],
                place[n + 2], place[n + 3]);
        #pragma unroll
        for (int n = TILE_M * VECTORS & ~3; n < TILE_M * VECTORS; n++)
            vstore16(convert_char16(clamp(level[n], LOW, HIGH)), 0, place[n]);
    }
}
#undef COLUMNS
#undef ROWS
#undef DOUBLES
#undef SHIFTS
#undef FACTORS
