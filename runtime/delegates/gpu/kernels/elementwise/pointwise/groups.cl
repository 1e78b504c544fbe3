// Element-wise operators on float32, int32 and bool in work-groups, as in vectors.cl: a work-item takes every
// GLOBAL_SIZE-th vector of four results.
// Defines: INPUTS, the pointers of the operands, VALUE(p, c), the generated expression of the result of channel c of pixel p,
// IS_FLOAT, and WIDTH, the bytes of a result.
// Parameters: TOTAL (vectors), OUT_STRIDE, those of the expressions, as a divisor VECTORS (of a pixel), and VALID, the channels
// that exist, where floats behind them are masked.
#ifndef POINTWISE_GROUPS
#define POINTWISE_GROUPS
// Unsigned, as C leaves undefined what signed numbers do beyond their bounds, where LiteRT's wrap around.
#define WRAPPING(type, a, operation, b) ((int)((uint)(a) operation (uint)(b)))
#define FLAGS(comparison) ((comparison) ? 1 : 0)
// Towards zero. LiteRT gives the bounds for what lies beyond them, and the upper one for NaN.
static inline int truncated_int(float x)
{
    const bool fits = x >= -2147483648.0f && x < 2147483648.0f;
    const int whole = (int)(fits ? x : 0.0f);
    const int bound = x < 0.0f ? -2147483647 - 1 : 2147483647;
    return fits ? whole : bound;
}
#endif
static void FUNC(INPUTS, OUTPUT(out) PARAMETERS)
{
    FOR_EACH_VECTOR {
        PLACE_OF_VECTOR(p, c);
        const int at = p * OUT_STRIDE + c;
#if IS_FLOAT
        STORE4(out, at, EPILOGUE(VEC4(VALUE(p, c), VALUE(p, c + 1), VALUE(p, c + 2), VALUE(p, c + 3)), p, c));
#elif WIDTH == 1
        STORE_WORD(out, at / 4, (uint)VALUE(p, c) | ((uint)VALUE(p, c + 1) << 8) | ((uint)VALUE(p, c + 2) << 16)
            | ((uint)VALUE(p, c + 3) << 24));
#else
        STORE_WORD(out, at, (uint)VALUE(p, c));
        STORE_WORD(out, at + 1, (uint)VALUE(p, c + 1));
        STORE_WORD(out, at + 2, (uint)VALUE(p, c + 2));
        STORE_WORD(out, at + 3, (uint)VALUE(p, c + 3));
#endif
    }
}
