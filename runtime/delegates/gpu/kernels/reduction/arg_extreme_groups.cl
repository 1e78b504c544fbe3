// The first K elements of lines in the order of the greatest or of the least, in work-groups: their indices and, of VALUES,
// they themselves; of equal elements the one with the lower index comes first. Lines are those of arg_extreme.cl. LANES
// work-items share a line, of which they look at neighbours, and meet in local memory; a group has LINES lines. Each pass over
// the line finds the first of the elements that come behind the last one found.
// Defines: LANES, LINES, ALONG (1: the elements of a line lie side by side, else those of neighbouring lines), VALUES, WIDE (1:
// indices have 64 bits), and KEY(i), a number for element i of the input that is greater, the earlier the element comes.
// Local: keys and places [LANES * LINES], of uint and int.
// Parameters: those of arg_extreme.cl, K, and of VALUES VALUE_STRIDE and VALUE_TAIL.
#define PRECEDES(a, i, b, j) ((a) > (b) || ((a) == (b) && (i) < (j)))
#if ALONG
#define APART 1
#else
#define APART LINES
#endif
#if WIDE
#define STORE_INDEX(i, index) \
    STORE_WORD(indices, 2 * (i), (uint)(index)); \
    STORE_WORD(indices, 2 * (i) + 1, 0u)
#else
#define STORE_INDEX(i, index) STORE_WORD(indices, i, (uint)(index))
#endif
#if VALUES
#define CHOSEN OUTPUT(values),
#else
#define CHOSEN
#endif
// The bits of a float as a number that is greater, the greater the float; both zeros are one, and a NaN has a place of its own.
static inline uint order_of_float(uint bits, uint of_nan)
{
    const uint size = bits & 0x7fffffffu;
    const uint place = bits > 0x80000000u ? ~bits : size | 0x80000000u;
    return size > 0x7f800000u ? of_nan : place;
}
static void FUNC(INPUT(in), CHOSEN OUTPUT(indices) PARAMETERS)
{
#if ALONG
    const int lane = LOCAL_ID(0);
    const int line = LOCAL_ID(1);
    const int item = line * LANES + lane;
#else
    const int lane = LOCAL_ID(1);
    const int line = LOCAL_ID(0);
    const int item = lane * LINES + line;
#endif
    const int wanted = GROUP_ID(0) * LINES + line;
    // Every work-item must reach the barriers: those behind the last line look at it too, and store nothing.
    const int e = min(wanted, ELEMENTS - 1);
    const bool stores = lane == 0 && wanted < ELEMENTS;
    const int outer = QUOTIENT(e, INNER);
    const int first = (outer * LENGTH - outer) * INNER + e;
    const int row = QUOTIENT(first, IN_CHANNELS);
    const int from = row * IN_STRIDE + (first - row * IN_CHANNELS) * IN_CHANNEL_STRIDE;
    const int pixel = QUOTIENT(e, OUT_CHANNELS);
    const int c = e - pixel * OUT_CHANNELS;
    const int to = pixel * OUT_STRIDE + c;
    uint last = 0xffffffffu;
    int last_at = -1;
    for (int k = 0; k < K; k++) {
        uint best = 0u;
        int at = LENGTH;
        for (int start = 0; start < LENGTH; start += LANES) {
            const int i = start + lane;
            if (i < LENGTH) {
                const uint key = KEY(from + i * IN_STEP);
                if (PRECEDES(last, last_at, key, i) && PRECEDES(key, i, best, at)) {
                    best = key;
                    at = i;
                }
            }
        }
        if (LANES > 1) {
            keys[item] = best;
            places[item] = at;
            BARRIER();
            for (int step = LANES / 2; step > 0; step /= 2) {
                if (lane < step) {
                    const uint key = keys[item + step * APART];
                    const int i = places[item + step * APART];
                    if (PRECEDES(key, i, best, at)) {
                        best = key;
                        at = i;
                        keys[item] = key;
                        places[item] = i;
                    }
                }
                BARRIER();
            }
            best = keys[item - lane * APART];
            at = places[item - lane * APART];
            BARRIER();
        }
        last = best;
        last_at = at;
        if (stores) {
            STORE_INDEX(to + k, at);
#if VALUES
            STORE_WORD(values, e * VALUE_STRIDE + k, LOAD_WORD(in, from + at * IN_STEP));
#endif
        }
    }
    if (stores && c == OUT_CHANNELS - 1) {
        for (int behind = K; behind < K + TAIL; behind++) {
            STORE_INDEX(to + behind, 0);
        }
#if VALUES
        for (int behind = K; behind < K + VALUE_TAIL; behind++) {
            STORE_WORD(values, e * VALUE_STRIDE + behind, 0u);
        }
#endif
    }
}
#undef PRECEDES
#undef APART
#undef STORE_INDEX
#undef CHOSEN
