// Copies between layouts: element i of the input in row-major order becomes element i of the output.
// Defines: T, the type that moves an element, PIXELS, IN_CHANNELS, OUT_CHANNELS, IN_STRIDE, IN_CHANNEL_STRIDE, OUT_STRIDE; the first output pixel lies
// OUT_SHIFT elements behind `out`; TAIL zeros are written behind each; GROUP output pixels lie together, the next group GROUP_STRIDE elements behind the start of one.
// Rows of unlike lengths share no alignment, so elements are copied one by one; equal channels spare the divisions.
static void FUNC(const int t, const int nt, __global const T *restrict in, __global T *restrict out PARAMETERS)
{
    const int first = (int)((long)PIXELS * FIRST_UNIT(t, nt) / UNITS);
    const int last = (int)((long)PIXELS * FIRST_UNIT(t + 1, nt) / UNITS);
    for (int p = first; p < last; p++) {
        __global T *restrict to = out + OUT_SHIFT + p / GROUP * GROUP_STRIDE + p % GROUP * OUT_STRIDE;
#if IN_CHANNELS == OUT_CHANNELS
        for (int c = 0; c < OUT_CHANNELS; c++)
            to[c] = in[p * IN_STRIDE + c * IN_CHANNEL_STRIDE];
#else
        for (int c = 0; c < OUT_CHANNELS; c++) {
            const int i = p * OUT_CHANNELS + c;
            to[c] = in[i / IN_CHANNELS * IN_STRIDE + i % IN_CHANNELS * IN_CHANNEL_STRIDE];
        }
#endif
        for (int c = OUT_CHANNELS; c < OUT_CHANNELS + TAIL; c++)
            to[c] = 0;
    }
}
