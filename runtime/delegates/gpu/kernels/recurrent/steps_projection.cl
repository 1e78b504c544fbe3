// The output of an LSTM from its hidden cells, [batch][padded cells]. A unit is 16 outputs of one batch row; weights lie as
// [block of 16 outputs][cell][16]. Parameters: UNIT_BLOCKS (of the outputs) as a divisor, CELLS, HIDDEN_STRIDE, OUTPUTS,
// OUT_FIRST, OUT_STEP, OUT_STRIDE, STATE_STRIDE, CLIP.
static void FUNC(const int t, const int nt, __global const float *restrict hidden, __global const float *restrict weights,
    __global const float *restrict biases, __global float *restrict out, __global float *restrict state PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int b = QUOTIENT(u, UNIT_BLOCKS), block = u - b * UNIT_BLOCKS, c = block * 16;
        __global const float *w = weights + block * CELLS * 16;
        float16 sum = load16(biases + c);
        for (int k = 0; k < CELLS; k++)
            sum += hidden[b * HIDDEN_STRIDE + k] * load16(w + k * 16);
        if (CLIP > 0.0f)
            sum = clamp16(sum, -CLIP, CLIP);
        sum = mask16(sum, c, OUTPUTS);
        store16(sum, out + (OUT_FIRST + b * OUT_STEP) * OUT_STRIDE + c);
        store16(sum, state + b * STATE_STRIDE + c);
    }
}
