// Copies between layouts: element i of the input in row-major order becomes element i of the output.
// Defines: T, the type that moves an element, DENSE (1: IN_CHANNEL_STRIDE is 1), ALIKE (1: pixels have as many channels).
// Parameters: PIXELS, IN_CHANNELS with its reciprocal, OUT_CHANNELS, IN_STRIDE, IN_CHANNEL_STRIDE, OUT_STRIDE; the first
// output pixel lies OUT_SHIFT elements behind `out`; TAIL zeros are written behind each; a group of GROUP output pixels
// lies together, and the next one GROUP_STEP elements further than the pixels alone would place it.
// Rows of unlike lengths share no alignment, so an output pixel is filled by runs that end where either row ends.
static void FUNC(const int t, const int nt, __global const T *restrict in, __global T *restrict out PARAMETERS)
{
    const int first_pixel = (int)((long)PIXELS * FIRST_UNIT(t, nt) / UNITS);
    const int last_pixel = (int)((long)PIXELS * FIRST_UNIT(t + 1, nt) / UNITS);
#if ALIKE && DENSE
    // Output pixels of one vector: what the input has behind their channels, the next pixels, is cut off.
    const VECTOR(T, 16) lane = (VECTOR(T, 16))(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const int vectors = OUT_CHANNELS + TAIL == 16 ? (PIXELS - 1) * IN_STRIDE + OUT_CHANNELS - 16 : -1;
    for (int p = first_pixel; p < last_pixel; p++) {
        __global T *restrict to = out + OUT_SHIFT + QUOTIENT(p, GROUP) * GROUP_STEP + p * OUT_STRIDE;
        if (p * IN_STRIDE <= vectors) {
            const VECTOR(T, 16) v = LOAD16(T, in + p * IN_STRIDE);
            STORE16(T, lane < (VECTOR(T, 16))(OUT_CHANNELS) ? v : (VECTOR(T, 16))(0), to);
            continue;
        }
        COPY_RUN(T, to, in + p * IN_STRIDE, OUT_CHANNELS);
        FILL_RUN(T, to + OUT_CHANNELS, 0, TAIL);
    }
#else
    int pixel = QUOTIENT(first_pixel * OUT_CHANNELS, IN_CHANNELS);
    int channel = first_pixel * OUT_CHANNELS - pixel * IN_CHANNELS;
    for (int p = first_pixel; p < last_pixel; p++) {
        __global T *restrict to = out + OUT_SHIFT + QUOTIENT(p, GROUP) * GROUP_STEP + p * OUT_STRIDE;
        for (int first = 0; first < OUT_CHANNELS;) {
            __global const T *from = in + pixel * IN_STRIDE + channel * IN_CHANNEL_STRIDE;
            const int run = min(OUT_CHANNELS - first, IN_CHANNELS - channel);
#if DENSE
            COPY_RUN(T, to + first, from, run);
#else
            for (int c = 0; c < run; c++)
                to[first + c] = from[c * IN_CHANNEL_STRIDE];
#endif
            first += run;
            channel += run;
            pixel += channel == IN_CHANNELS;
            channel = channel == IN_CHANNELS ? 0 : channel;
        }
        FILL_RUN(T, to + OUT_CHANNELS, 0, TAIL);
    }
#endif
}
