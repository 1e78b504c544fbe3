// A tensor with another one written over a box of it, whose first corner is computed and moved so that the box fits.
// A unit is one output pixel. Defines: T, the type that moves an element, INDEX, that of a start, RANK, SIZES and WINDOWS,
// the names of as many parameters, VECTORS: 1 where whole vectors of the tensor may be copied. Parameters: SIZE0.., WINDOW0..
// (the extents of the tensor and the box), CHANNELS, IN_STRIDE, IN_CHANNEL_STRIDE, UPDATE_STRIDE, OUT_STRIDE, TAIL (lanes to
// fill with zeros).
static void FUNC(const int t, const int nt, __global const T *restrict in, __global const T *restrict update,
    __global const INDEX *restrict starts, __global T *restrict out PARAMETERS)
{
    const int sizes[] = {SIZES}, windows[] = {WINDOWS};
    int first[RANK];
    for (int a = 0; a < RANK; a++) {
        const INDEX start = starts[a], room = sizes[a] - windows[a];
        first[a] = (int)(start < 0 ? 0 : (start > room ? room : start));
    }
    for (int p = FIRST_UNIT(t, nt); p < FIRST_UNIT(t + 1, nt); p++) {
        int rest = p, row = 0, rows = 1;
        bool is_inside = true;
        for (int a = RANK - 2; a >= 0; a--) {
            const int above = rest / sizes[a], place = rest - above * sizes[a] - first[a];
            is_inside = is_inside && place >= 0 && place < windows[a];
            row += place * rows;
            rows *= windows[a];
            rest = above;
        }
        __global const T *from = in + p * IN_STRIDE;
        __global T *to = out + p * OUT_STRIDE;
#if VECTORS
        for (int c = 0; c < CHANNELS; c += 16)
            store16(load16(from + c), to + c);
#else
        for (int c = 0; c < CHANNELS; c++)
            to[c] = from[c * IN_CHANNEL_STRIDE];
        for (int c = CHANNELS; c < CHANNELS + TAIL; c++)
            to[c] = 0;
#endif
        if (is_inside)
            for (int c = 0; c < windows[RANK - 1]; c++)
                to[first[RANK - 1] + c] = update[row * UPDATE_STRIDE + c];
    }
}
