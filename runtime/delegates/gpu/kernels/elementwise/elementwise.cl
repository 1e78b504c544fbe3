// Element-wise chains: everything is in the epilogue, which starts with the load of its first operand.
// The zero that enters the epilogue is replaced by that load. Memory bounds it, so nothing is tiled.
// Parameters: PIXELS, CHANNELS (padded), OUT_STRIDE. A unit is a range of pixels.
static void FUNC(const int t, const int nt, __global float *restrict out PARAMETERS)
{
    const int first = (int)((long)PIXELS * FIRST_UNIT(t, nt) / UNITS);
    const int last = (int)((long)PIXELS * FIRST_UNIT(t + 1, nt) / UNITS);
    for (int p = first; p < last; p++)
        for (int c = 0; c < CHANNELS; c += 16)
            store16(EPILOGUE((float16)0.0f, p, c), out + p * OUT_STRIDE + c);
}
