// Convolution with any window, and matrix products, of int8: exact sums in int32, requantised as LiteRT's reference
// kernels do. A unit is TILE_M consecutive output pixels by 16 * VECTORS channels; the last tile overlaps its neighbour.
// Four neighbouring channels of a pixel are one int; an instruction, or the same in plain integers, multiplies them by
// the weights of 16 outputs. It takes unsigned bytes, so 128 is added to the input's; the offset makes up for that, for
// the input's zero point and for the bias. Pixels outside of the image are read from `border`, zero points.
// weights: [PANELS][FILTER_H * FILTER_W * DEPTH][16 * VECTORS] ints of four weights.
// stage: for each panel the offsets; then, with ONCE, scales in double precision, else multipliers, left and right shifts.
// Defines: TILE_M, VECTORS, INSTRUCTION, ONCE. Parameters: PIXELS, TILES, CHANNELS (of the output, padded), DEPTH (ints of
// a pixel), IN_H, IN_W, IN_STRIDE (ints), OUT_H, OUT_W, OUT_STRIDE, FILTER_H, FILTER_W, STRIDE_H, STRIDE_W, DILATION_H,
// DILATION_W, PAD_TOP, PAD_LEFT, ZERO_POINT, LOW, HIGH (of the output).
#if ONCE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
// Joined with the subtraction below, the product would not be rounded.
#pragma OPENCL FP_CONTRACT OFF
#endif
#define COLUMNS (16 * VECTORS)

static inline int16 LOCAL_NAME(dot)(int16 sum, int bytes, int16 weights)
{
#if INSTRUCTION
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"((int16)bytes), "v"(weights));
    return sum;
#else
    const int16 a = (int16)(bytes & 255) * (weights << 24 >> 24), b = (int16)(bytes >> 8 & 255) * (weights << 16 >> 24);
    const int16 c = (int16)(bytes >> 16 & 255) * (weights << 8 >> 24), d = (int16)(bytes >> 24 & 255) * (weights >> 24);
    return sum + ((a + b) + (c + d));
#endif
}

// Levels less the zero point, of column j of a panel on.
static inline int16 LOCAL_NAME(scaled)(int16 sum, __global const int *restrict stage, const int j)
{
#if ONCE
    const double16 x = convert_double16(sum) * *(__global const double16 *)(stage + COLUMNS + 2 * j);
    const double16 whole = trunc(x), rounded = whole + trunc((x - whole) * 2.0);
    return convert_int16(clamp(rounded, (double16)-1e9, (double16)1e9));
#else
    return requantised16(sum, stage + COLUMNS + j, COLUMNS);
#endif
}

static void FUNC(const int t, const int nt, __global const char *restrict in, __global const char *restrict weights,
    __global const int *restrict stage, __global const char *restrict border, __global char *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int panel = u / TILES, p = min(u % TILES * TILE_M, PIXELS - TILE_M);
        __global const int *head = stage + (long)panel * (ONCE ? 3 : 4) * COLUMNS;
        __global const int *w = (__global const int *)weights + (long)panel * FILTER_H * FILTER_W * DEPTH * COLUMNS;
        int16 sum[TILE_M][VECTORS];
        #pragma unroll
        for (int i = 0; i < TILE_M; i++)
            #pragma unroll
            for (int j = 0; j < VECTORS; j++)
                sum[i][j] = *(__global const int16 *)(head + j * 16);
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
                for (int k = 0; k < DEPTH; k++) {
                    int16 b[VECTORS];
                    #pragma unroll
                    for (int j = 0; j < VECTORS; j++)
                        b[j] = *(__global const int16 *)(w + (long)k * COLUMNS + j * 16);
                    #pragma unroll
                    for (int i = 0; i < TILE_M; i++) {
                        const int bytes = a[i][k] ^ (int)0x80808080;
                        #pragma unroll
                        for (int j = 0; j < VECTORS; j++)
                            sum[i][j] = LOCAL_NAME(dot)(sum[i][j], bytes, b[j]);
                    }
                }
                w += (long)DEPTH * COLUMNS;
            }
        #pragma unroll
        for (int j = 0; j < VECTORS; j++) {
            const int c = panel * COLUMNS + j * 16;
            // The last panel may be wider than what is left of the channels.
            if (c < CHANNELS)
                #pragma unroll
                for (int i = 0; i < TILE_M; i++) {
                    const int16 level = LOCAL_NAME(scaled)(sum[i][j], head, j * 16) + ZERO_POINT;
                    vstore16(convert_char16(clamp(level, LOW, HIGH)), 0, out + (long)(p + i) * OUT_STRIDE + c);
                }
        }
    }
}
#undef COLUMNS
