// Gathers in work-groups, of elements of 32 bits or bytes, with indices of int32, as in gather.cl: a work-item takes every
// GLOBAL_SIZE-th vector of four elements of the output.
// Defines: ROWS, CHECKED, DEPTH, WIDTH (bytes of an element), and EXTENT(k), the extent of index k of a vector.
// Parameters: those of gather.cl, TOTAL (vectors) and as a divisor VECTORS (of a pixel).
#if CHECKED
#define FLAG , OUTPUT(flag)
#else
#define FLAG
#endif
static void FUNC(INPUT(in), INPUT(indices), OUTPUT(out) FLAG PARAMETERS)
{
    FOR_EACH_VECTOR {
        PLACE_OF_VECTOR(p, c);
        const int at = p * OUT_STRIDE + c;
        uint packed = 0u;
        for (int lane = 0; lane < 4; lane++) {
            uint word = 0u;
            if (c + lane < CHANNELS) {
#if ROWS
                const int item = p;
#else
                const int item = p * CHANNELS + c + lane;
#endif
                const int outer = QUOTIENT(item, COUNT_INNER);
                const int within = item - outer * COUNT_INNER;
                const int vector = QUOTIENT(within, INNER);
                const int place = (QUOTIENT(outer, SHARED) * COUNT + vector) * DEPTH;
                int position = 0;
                for (int k = 0; k < DEPTH; k++) {
                    const int row = QUOTIENT(place + k, INDEX_CHANNELS);
                    const int index = (int)LOAD_WORD(indices, row * INDEX_STRIDE + place + k - row * INDEX_CHANNELS);
                    const bool is_inside = index >= 0 && index < EXTENT(k);
#if CHECKED
                    if (!is_inside) {
                        STORE_WORD(flag, 0, 1u);
                    }
#endif
                    position = position * EXTENT(k) + (is_inside ? index : 0);
                }
                const int source = (outer * SPAN + position) * INNER + within - vector * INNER;
#if ROWS
                const int from = source * IN_STRIDE + (c + lane) * IN_CHANNEL_STRIDE;
#else
                const int pixel = QUOTIENT(source, IN_CHANNELS);
                const int from = pixel * IN_STRIDE + (source - pixel * IN_CHANNELS) * IN_CHANNEL_STRIDE;
#endif
#if WIDTH == 1
                word = LOAD_BYTE(in, from);
#else
                word = LOAD_WORD(in, from);
#endif
            }
#if WIDTH == 1
            packed = packed | (word << (uint)(lane * 8));
#else
            if (c + lane < CHANNELS + TAIL) {
                STORE_WORD(out, at + lane, word);
            }
#endif
        }
#if WIDTH == 1
        STORE_WORD(out, at / 4, packed);
#endif
    }
}
#undef FLAG
