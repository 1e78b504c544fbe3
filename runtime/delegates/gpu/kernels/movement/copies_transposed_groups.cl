// A transposition that moves the channels, in work-groups: tiles of 32 by 32 go through local memory, so that both sides are
// read and written in runs. Axis j of the output is the input's channels, axis k of the input the output's channels; the
// third dimension of the groups counts the others, at SOURCE(z) in the input and pixel TARGET(z) of the output.
// Local: tile [32 * 33], of float: a line of 33 keeps the numbers of a column in different banks.
// Parameters: LINES (extent of j), COLUMNS (of k), PADDED (of k, padded), COLUMN_STEP (of k in the input), LINE_STEP (of j, in
// pixels of the output), OUT_STRIDE, those of the expressions.
static void FUNC(INPUT(in), OUTPUT(out) PARAMETERS)
{
    const int lx = LOCAL_ID(0);
    const int ly = LOCAL_ID(1);
    const int z = GROUP_ID(2);
    const int k0 = GROUP_ID(0) * 32;
    const int j0 = GROUP_ID(1) * 32;
    float4 v = SPLAT4(0.0f);
    if (k0 + ly < COLUMNS && j0 + lx * 4 < LINES) {
        v = LOAD4(in, SOURCE(z) + (k0 + ly) * COLUMN_STEP + j0 + lx * 4);
    }
    tile[(lx * 4) * 33 + ly] = v.x;
    tile[(lx * 4 + 1) * 33 + ly] = v.y;
    tile[(lx * 4 + 2) * 33 + ly] = v.z;
    tile[(lx * 4 + 3) * 33 + ly] = v.w;
    BARRIER();
    if (j0 + ly < LINES && k0 + lx * 4 < PADDED) {
        const int at = ly * 33 + lx * 4;
        const int p = TARGET(z) + (j0 + ly) * LINE_STEP;
        STORE4(out, p * OUT_STRIDE + k0 + lx * 4, VEC4(tile[at], tile[at + 1], tile[at + 2], tile[at + 3]));
    }
}
