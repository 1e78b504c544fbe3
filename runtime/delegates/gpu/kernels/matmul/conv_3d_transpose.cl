// Transposed convolution over depth, height and width: an output cell gathers the taps that reach it. A unit is one output
// cell and 16 channels. weights: [block of 16 channels][tap][input channel][16]; biases: [block][16].
// Parameters: K (input channels), CHANNELS, IN_STRIDE, OUT_STRIDE, as divisors UNIT_BLOCKS, OUT_VOLUME, OUT_AREA (OUT_H *
// OUT_W), OUT_W and STRIDE_D, STRIDE_H, STRIDE_W, and for D, H and W: IN_, FILTER_, DILATION_, PAD_ (in front).
static void FUNC(const int t, const int nt, __global const float *restrict in, __global const float *restrict weights,
    __global const float *restrict biases, __global float *restrict out PARAMETERS)
{
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        const int p = QUOTIENT(u, UNIT_BLOCKS), block = u - p * UNIT_BLOCKS, c = block * 16;
        const int volume = QUOTIENT(p, OUT_VOLUME), cell = p - volume * OUT_VOLUME;
        const int z = QUOTIENT(cell, OUT_AREA), flat = cell - z * OUT_AREA;
        const int y = QUOTIENT(flat, OUT_W), x = flat - y * OUT_W;
        __global const float *w = weights + block * FILTER_D * FILTER_H * FILTER_W * K * 16;
        float16 sum = load16(biases + c);
        for (int kz = 0; kz < FILTER_D; kz++) {
            const int from_z = z + PAD_D - kz * DILATION_D, iz = QUOTIENT(max(from_z, 0), STRIDE_D);
            const bool reaches_z = from_z >= 0 && iz < IN_D && iz * STRIDE_D == from_z;
            for (int ky = 0; ky < FILTER_H; ky++) {
                const int from_y = y + PAD_H - ky * DILATION_H, iy = QUOTIENT(max(from_y, 0), STRIDE_H);
                const bool reaches_y = from_y >= 0 && iy < IN_H && iy * STRIDE_H == from_y;
                for (int kx = 0; kx < FILTER_W; kx++, w += K * 16) {
                    const int from_x = x + PAD_W - kx * DILATION_W, ix = QUOTIENT(max(from_x, 0), STRIDE_W);
                    const bool reaches_x = from_x >= 0 && ix < IN_W && ix * STRIDE_W == from_x;
                    if (!(reaches_z && reaches_y && reaches_x))
                        continue;
                    __global const float *a = in + (((volume * IN_D + iz) * IN_H + iy) * IN_W + ix) * IN_STRIDE;
                    for (int k = 0; k < K; k++)
                        sum += a[k] * load16(w + k * 16);
                }
            }
        }
        sum = mask16(sum, c, CHANNELS);
        store16(EPILOGUE(sum, p, c), out + p * OUT_STRIDE + c);
    }
}
