// Products in work-groups: out[p][n] = sum over k of left[p][k] * right[k][n] + bias[n]. A group of 16 x 16 work-items has a
// tile of 16 * ROWS pixels by 64 * VECTORS columns; for TILE_K k at a time it copies both sides to local memory, where each
// number that is loaded serves a row or a column of the tile. A work-item has ROWS by 4 * VECTORS sums in registers: rows
// are 16 apart, vectors of columns too, so that neighbours read neighbouring local memory. Loops over what is in registers are
// unrolled: where a compiler leaves one rolled, the array's places are not known before it runs, and it lies in local memory.
// LEFT says what the left side is:
// LEFT_ROWS: a row of the input, or of a batch b of matrices, LEFT_ROW elements behind the last one.
// LEFT_WINDOW: the window of an output pixel: k counts its taps, and their channels, padded to DEPTH. With VOLUME pixels and
// taps lie in frames.
// PHASES: of a transposed convolution, the taps that reach an output pixel. Pixels whose positions have equal remainders by
// the strides are a phase, whose taps lie next to each other, from the last input of the window on; it has K rows of the
// right side for itself. FILTER_W are the taps of a phase in a row, OUT_PIXELS and OUT_W positions of the longest phase.
// VECTOR_LOADS: four numbers along k lie side by side in an aligned place; else they are LEFT_STEP apart.
// LEFT_SCALED: number k of a row is multiplied by number k of one more input first.
// RIGHT says what the right side is:
// RIGHT_PACKED: constant, K rows of CHANNELS columns of the type WEIGHT. RIGHT_ROWS: rows of matrices of a batch.
// RIGHT_COLUMNS: their columns, RIGHT_ROW apart.
// MEMBERS: windows and columns are those of groups of channels: the columns of member g, GROUP_OUT, see IN_CHANNELS of its own.
// MATRIX: the matrix units multiply, by the functions of portable_opencl.cl, numbers of the type UNIT: F16 or BF16, which is
// that of the weights, too, in pairs along k, or TF32, to which both sides are rounded, each in a word. It is how many uint2
// hold four of them. A warp, of which there are 2 down and 4 across, has sums of ROWS / 2 by VECTORS
// tiles of 16 x 16. A fragment holds in the order of its k what lies side by side: a work-item of a warp has four neighbours
// along k, for both sides alike, so that the sum is the same. In the same way its four columns of a tile are neighbours. While
// one part of K is multiplied, the next is on its way from memory.
// SPLIT: sums of a range of SPLIT_K k go to scratch memory. The third dimension of the groups is the range, of MEMBERS the
// member and in it one of PARTS ranges, of PHASES the phase and in it the range, and else the batch.
// Defines: those, ROWS, VECTORS, TILE_K, UNIT, for a constant right side WEIGHT, and for batches LEFT_START(b) and RIGHT_START(b),
// where their matrices begin.
// Local: tile_left [16 * ROWS * TILE_K / 4], tile_right [TILE_K * 16 * VECTORS], of float4; of MATRIX of uint2, both MATRIX
// times by rows of TILE_K / 4, and exchange [6 * 256] of uint.
// Parameters: M, N, K, CHANNELS (N, padded), IN_CHANNELS, LEFT_ROW, LEFT_STEP, OUT_STRIDE; for a window its own; for batches
// RIGHT_ROW; for a split SPLIT_K; for members and phases as a divisor PARTS; for members GROUP_OUT; for phases TAPS_H, TAPS_W
// (of the whole filter), OUT_H, WIDTH and OUT_M (rows, columns and pixels of the output), CUT_H, CUT_W as in
// transpose_conv.cl, and as divisors STRIDE_H, STRIDE_W, PHASES_W.
#define TILE_M (16 * ROWS)
#define TILE_N (64 * VECTORS)
#define QUADS (TILE_K / 4)
#define LEFT_LOADS ((TILE_M * QUADS + 255) / 256)
#define RIGHT_LOADS (TILE_K * 16 * VECTORS / 256)
#if MATRIX
#define BETWEEN_ROWS 8
#define BETWEEN_VECTORS 16
#else
#define BETWEEN_ROWS 16
#define BETWEEN_VECTORS 64
#endif
#if LEFT_SCALED
#define SCALES , INPUT(scale)
#else
#define SCALES
#endif
static void FUNC(INPUT(left), INPUT(right), OUTPUT(out) SCALES PARAMETERS)
{
    const int lx = LOCAL_ID(0);
    const int ly = LOCAL_ID(1);
    const int item = ly * 16 + lx;
    const int first_m = GROUP_ID(1) * TILE_M;
#if MEMBERS
    const int member = QUOTIENT(GROUP_ID(2), PARTS);
    const int part = GROUP_ID(2) - member * PARTS;
    const int first_n = member * GROUP_OUT + GROUP_ID(0) * TILE_N;
    // Behind the last member stand the padded columns.
    const int last_n = (member + 1) * GROUP_OUT < N ? (member + 1) * GROUP_OUT : CHANNELS;
    const int first_channel = member * IN_CHANNELS;
#elif PHASES
    const int phase = QUOTIENT(GROUP_ID(2), PARTS);
    const int part = GROUP_ID(2) - phase * PARTS;
    const int phase_y = QUOTIENT(phase, PHASES_W);
    const int phase_x = phase - phase_y * PHASES_W;
    // The input under the first tap of the phase's first position, and how many taps the phase has.
    const int lead_y = QUOTIENT(phase_y + CUT_H, STRIDE_H);
    const int lead_x = QUOTIENT(phase_x + CUT_W, STRIDE_W);
    const int taps_y = QUOTIENT(max(TAPS_H + (lead_y + 1) * STRIDE_H - 1 - phase_y - CUT_H, 0), STRIDE_H);
    const int taps_x = QUOTIENT(max(TAPS_W + (lead_x + 1) * STRIDE_W - 1 - phase_x - CUT_W, 0), STRIDE_W);
    const int first_n = GROUP_ID(0) * TILE_N;
    const int last_n = CHANNELS;
    const int first_channel = 0;
#else
    const int part = GROUP_ID(2);
    const int first_n = GROUP_ID(0) * TILE_N;
    const int last_n = CHANNELS;
    const int first_channel = 0;
#endif
#if SPLIT
    const int first_k = part * SPLIT_K;
    const int last_k = min(first_k + SPLIT_K, K);
#else
    const int batch = GROUP_ID(2);
    const int first_k = 0;
    const int last_k = K;
#endif
    // What this work-item loads of the left side stays in its rows.
    int base[LEFT_LOADS];
#if LEFT_WINDOW
    int top[LEFT_LOADS];
    int before[LEFT_LOADS];
#if VOLUME
    int front[LEFT_LOADS];
#endif
#endif
    #pragma unroll
    for (int i = 0; i < LEFT_LOADS; i++) {
        const int m = min(first_m + (item + i * 256) / QUADS, M - 1);
#if LEFT_WINDOW
        PLACE_OF_PIXEL(m, image, oy, ox);
#if VOLUME
        const int volume = QUOTIENT(image, OUT_D);
        base[i] = volume * IN_D;
        front[i] = (image - volume * OUT_D) * STRIDE_D - PAD_FRONT;
#else
        base[i] = image * IN_H;
#endif
#if PHASES
        top[i] = oy + lead_y;
        before[i] = ox + lead_x;
#else
        top[i] = oy * STRIDE_H - PAD_TOP;
        before[i] = ox * STRIDE_W - PAD_LEFT;
#endif
#elif RIGHT_PACKED
        base[i] = m * LEFT_ROW;
#else
        base[i] = LEFT_START(batch) + m * LEFT_ROW;
#endif
    }
#if RIGHT_PACKED && !MATRIX
    // Each of its loads of the right side is of the same columns.
    const int own_n = min(first_n + item % (16 * VECTORS) * 4, CHANNELS - 4);
    const float4 own_scale = SCALE4(right, own_n);
    const float4 own_zero = ZERO4(right, own_n);
#endif
    float4 sum[ROWS * VECTORS];
    #pragma unroll
    for (int i = 0; i < ROWS * VECTORS; i++) {
        sum[i] = SPLAT4(0.0f);
    }
#if MATRIX
    const int quad = item % 4;
    const int across = item / 32 % 4 * (16 * VECTORS);
    const int sum_m = item / 128 * (8 * ROWS) + item % 32 / 4;
    const int sum_n = across + quad * 4;
    // The column of the first half of a tile in which this work-item's pairs of the right side are: that of its first two sums.
    const int right_n = across + item % 32 / 8 * 4 + item / 4 % 2;
    uint2 next_left[MATRIX * LEFT_LOADS];
    uint2 next_right[MATRIX * 4];
    const int last_step = last_k + TILE_K;
    // While the first part is on its way, nothing is multiplied.
    for (int place = item; place < MATRIX * TILE_M * QUADS; place += 256) {
        tile_left[place] = (uint2)(0u);
    }
    for (int place = item; place < MATRIX * TILE_N * QUADS; place += 256) {
        tile_right[place] = (uint2)(0u);
    }
    BARRIER();
#else
    const int sum_m = ly;
    const int sum_n = lx * 4;
    const int last_step = last_k;
#endif
    for (int k0 = first_k; k0 < last_step; k0 += TILE_K) {
        #pragma unroll
        for (int i = 0; i < LEFT_LOADS; i++) {
            const int place = item + i * 256;
            const int k = k0 + place % QUADS * 4;
            float4 v = SPLAT4(0.0f);
#if LEFT_WINDOW
            const int tap = QUOTIENT(k, DEPTH);
            const int channel = k - tap * DEPTH;
            const int row = QUOTIENT(tap, FILTER_W);
#if PHASES
            const int column = tap - row * FILTER_W;
            const int x = before[i] - column;
            const int y = top[i] - row;
            const int lines = base[i];
            const bool is_inside = k < last_k && row < taps_y && column < taps_x && y >= 0 && y < IN_H && x >= 0
                && x < IN_W;
#elif VOLUME
            const int x = before[i] + (tap - row * FILTER_W) * DILATION_W;
            const int fz = QUOTIENT(row, FILTER_H);
            const int z = front[i] + fz * DILATION_D;
            const int y = top[i] + (row - fz * FILTER_H) * DILATION_H;
            const int lines = (base[i] + z) * IN_H;
            const bool is_inside =
                k < last_k && z >= 0 && z < IN_D && y >= 0 && y < IN_H && x >= 0 && x < IN_W;
#else
            const int x = before[i] + (tap - row * FILTER_W) * DILATION_W;
            const int y = top[i] + row * DILATION_H;
            const int lines = base[i];
            const bool is_inside = k < last_k && y >= 0 && y < IN_H && x >= 0 && x < IN_W;
#endif
            const int from = ((lines + y) * IN_W + x) * LEFT_ROW + (first_channel + channel) * LEFT_STEP;
            const int count = IN_CHANNELS - channel;
#else
            const bool is_inside = k < last_k;
            const int from = base[i] + k * LEFT_STEP;
            const int count = last_k - k;
#endif
            if (is_inside) {
#if VECTOR_LOADS
                v = mask4(LOAD4(left, from), 0, count);
#else
                v.x = LOAD(left, from);
                if (count > 1) {
                    v.y = LOAD(left, from + LEFT_STEP);
                }
                if (count > 2) {
                    v.z = LOAD(left, from + 2 * LEFT_STEP);
                }
                if (count > 3) {
                    v.w = LOAD(left, from + 3 * LEFT_STEP);
                }
#endif
#if LEFT_SCALED
                v = v * LOAD4(scale, k);
#endif
            }
#if MATRIX
            #pragma unroll
            for (int part = 0; part < MATRIX; part++) {
                next_left[MATRIX * i + part] = JOIN(part, UNIT)(v, part);
            }
#else
            if (place < TILE_M * QUADS) {
                tile_left[place] = v;
            }
#endif
        }
#if MATRIX
        // Four columns of four k, and k are neighbours in a quarter of the work-items' group.
        const int right_k = k0 + item % QUADS * 4;
        const int right_column = first_n + item / QUADS * 4;
        #pragma unroll
        for (int r = 0; r < 4; r++) {
            next_right[MATRIX * r] = next_right[MATRIX * r + MATRIX - 1] = (uint2)(0u);
            if (item < QUADS * 16 * VECTORS && right_k + r < last_k && right_column < last_n) {
#if PHASES
                const int from = (phase * K + right_k + r) * CHANNELS + right_column;
#else
                const int from = (right_k + r) * CHANNELS + right_column;
#endif
#if MATRIX == 2
                const float4 v = WEIGHTS4(right, from, SPLAT4(1.0f), SPLAT4(0.0f));
                next_right[2 * r] = JOIN(part, UNIT)(v, 0);
                next_right[2 * r + 1] = JOIN(part, UNIT)(v, 1);
#else
                next_right[r] = WEIGHTS_AS_STORED4(right, from);
#endif
            }
        }
        #pragma unroll
        for (int part = 0; part < MATRIX; part++) {
            uint2 a[ROWS];
            #pragma unroll
            for (int i = 0; i < ROWS; i++) {
                a[i] = tile_left[(part * TILE_M + sum_m + i * 8) * QUADS + quad];
            }
            #pragma unroll
            for (int j = 0; j < VECTORS; j++) {
                const uint2 b0 = tile_right[(part * TILE_N + right_n + j * 16) * QUADS + quad];
                const uint2 b1 = tile_right[(part * TILE_N + right_n + j * 16 + 2) * QUADS + quad];
                #pragma unroll
                for (int i = 0; i < ROWS * VECTORS; i += 2 * VECTORS) {
                    const uint2 upper = a[i / VECTORS];
                    const uint2 lower = a[i / VECTORS + 1];
                    const uint4 both = (uint4)(upper.x, lower.x, upper.y, lower.y);
                    const float4 top = sum[i + j];
                    const float4 low = sum[i + VECTORS + j];
                    const float4 x = JOIN(multiply, UNIT)(both, b0, VEC4(top.x, top.y, low.x, low.y), item, exchange);
                    const float4 y = JOIN(multiply, UNIT)(both, b1, VEC4(top.z, top.w, low.z, low.w), item, exchange);
                    sum[i + j] = VEC4(x.x, x.y, y.x, y.y);
                    sum[i + VECTORS + j] = VEC4(x.z, x.w, y.z, y.w);
                }
            }
        }
        BARRIER();
        #pragma unroll
        for (int i = 0; i < LEFT_LOADS; i++) {
            const int place = item + i * 256;
            #pragma unroll
            for (int part = 0; part < MATRIX; part++) {
                if (place < TILE_M * QUADS) {
                    tile_left[part * TILE_M * QUADS + place] = next_left[MATRIX * i + part];
                }
            }
        }
        if (item < QUADS * 16 * VECTORS) {
            const int place = item / QUADS * 4 * QUADS + item % QUADS;
#if MATRIX == 2
            #pragma unroll
            for (int part = 0; part < 2; part++) {
                // Of two neighbours along k the columns 0, 1 and 2, 3.
                const uint2 first = next_right[4 * part];
                const uint2 behind = next_right[4 * part + 1];
                const uint2 second = next_right[4 * part + 2];
                const uint2 behind_second = next_right[4 * part + 3];
                const int to = part * TILE_N * QUADS + place;
                tile_right[to] = (uint2)(first.x, second.x);
                tile_right[to + QUADS] = (uint2)(first.y, second.y);
                tile_right[to + 2 * QUADS] = (uint2)(behind.x, behind_second.x);
                tile_right[to + 3 * QUADS] = (uint2)(behind.y, behind_second.y);
            }
#else
            const uint4 first = (uint4)(next_right[0].x, next_right[2].x, next_right[0].y, next_right[2].y);
            const uint4 second = (uint4)(next_right[1].x, next_right[3].x, next_right[1].y, next_right[3].y);
            const uint4 even = (first & 0xffffu) | second << 16;
            const uint4 odd = first >> 16 | (second & 0xffff0000u);
            tile_right[place] = even.xy;
            tile_right[place + QUADS] = odd.xy;
            tile_right[place + 2 * QUADS] = even.zw;
            tile_right[place + 3 * QUADS] = odd.zw;
#endif
        }
        BARRIER();
#else
        for (int i = 0; i < RIGHT_LOADS; i++) {
            const int place = item + i * 256;
            float4 v = SPLAT4(0.0f);
#if RIGHT_COLUMNS
            // Neighbours load along k, where the numbers lie side by side.
            const int row = place % TILE_K;
            const int column = place / TILE_K;
            const int k = k0 + row;
            const int n = first_n + column * 4;
            if (k < last_k && n < N) {
                const int from = RIGHT_START(batch) + n * RIGHT_ROW + k;
                v.x = LOAD(right, from);
                if (n + 1 < N) {
                    v.y = LOAD(right, from + RIGHT_ROW);
                }
                if (n + 2 < N) {
                    v.z = LOAD(right, from + 2 * RIGHT_ROW);
                }
                if (n + 3 < N) {
                    v.w = LOAD(right, from + 3 * RIGHT_ROW);
                }
            }
            tile_right[row * (16 * VECTORS) + column] = v;
#else
            const int k = k0 + place / (16 * VECTORS);
            const int n = first_n + place % (16 * VECTORS) * 4;
            if (k < last_k && n < last_n) {
#if PHASES
                v = WEIGHTS4(right, (phase * K + k) * CHANNELS + n, own_scale, own_zero);
#elif RIGHT_PACKED
                v = WEIGHTS4(right, k * CHANNELS + n, own_scale, own_zero);
#else
                v = mask4(LOAD4(right, RIGHT_START(batch) + k * RIGHT_ROW + n), n, N);
#endif
            }
            tile_right[place] = v;
#endif
        }
        BARRIER();
        for (int q = 0; q < QUADS; q++) {
            float4 a[ROWS];
            #pragma unroll
            for (int i = 0; i < ROWS; i++) {
                a[i] = tile_left[(ly + i * 16) * QUADS + q];
            }
            #pragma unroll
            for (int j = 0; j < VECTORS; j++) {
                const int column = q * 4 * (16 * VECTORS) + lx + j * 16;
                const float4 b0 = tile_right[column];
                const float4 b1 = tile_right[column + 16 * VECTORS];
                const float4 b2 = tile_right[column + 32 * VECTORS];
                const float4 b3 = tile_right[column + 48 * VECTORS];
                #pragma unroll
                for (int i = 0; i < ROWS; i++) {
                    sum[i * VECTORS + j] = a[i].x * b0 + sum[i * VECTORS + j];
                    sum[i * VECTORS + j] = a[i].y * b1 + sum[i * VECTORS + j];
                    sum[i * VECTORS + j] = a[i].z * b2 + sum[i * VECTORS + j];
                    sum[i * VECTORS + j] = a[i].w * b3 + sum[i * VECTORS + j];
                }
            }
        }
        BARRIER();
#endif
    }
    // Behind the last column stands zero, or its product with an infinity.
    #pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int m = first_m + sum_m + i * BETWEEN_ROWS;
#if PHASES
        PLACE_OF_PIXEL(m, image, step_y, step_x);
        const int out_y = step_y * STRIDE_H + phase_y;
        const int out_x = step_x * STRIDE_W + phase_x;
        const int p = (image * OUT_H + out_y) * WIDTH + out_x;
        // Other phases than the longest end earlier.
        const bool is_stored = m < M && out_y < OUT_H && out_x < WIDTH;
        const int pixels = OUT_M;
#elif RIGHT_PACKED
        const int p = m;
        const bool is_stored = m < M;
        const int pixels = M;
#else
        const int p = batch * M + m;
        const bool is_stored = m < M;
#endif
        #pragma unroll
        for (int j = 0; j < VECTORS; j++) {
            const int c = first_n + sum_n + j * BETWEEN_VECTORS;
            if (is_stored && c < last_n) {
#if SPLIT
                STORE4(out, (part * pixels + p) * CHANNELS + c, sum[i * VECTORS + j]);
#elif RIGHT_PACKED
                const float4 v = mask4(sum[i * VECTORS + j] + LOAD4(right, c), c, N);
                STORE4(out, p * OUT_STRIDE + c, EPILOGUE(v, p, c));
#else
                const float4 v = mask4(sum[i * VECTORS + j], c, N);
                STORE4(out, p * OUT_STRIDE + c, EPILOGUE(v, p, c));
#endif
            }
        }
    }
}
#undef TILE_M
#undef TILE_N
#undef QUADS
#undef LEFT_LOADS
#undef RIGHT_LOADS
#undef BETWEEN_ROWS
#undef BETWEEN_VECTORS
#undef SCALES
