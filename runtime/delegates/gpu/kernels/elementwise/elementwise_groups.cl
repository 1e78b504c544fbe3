// Element-wise chains in work-groups; everything is in the epilogue, which starts with the load of its first operand.
// A work-item takes every GLOBAL_SIZE-th vector of four channels, so that neighbours read neighbouring memory.
// Parameters: TOTAL (vectors), OUT_STRIDE, and as a divisor VECTORS (of a pixel).
static void FUNC(OUTPUT(out) PARAMETERS)
{
    FOR_EACH_VECTOR {
        PLACE_OF_VECTOR(p, c);
        STORE4(out, p * OUT_STRIDE + c, EPILOGUE(SPLAT4(0.0f), p, c));
    }
}
