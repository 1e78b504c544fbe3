// Landmarks of a crop taken back into the image by a matrix: x and y move, z stays. A unit is one landmark.
// Parameters: DIMENSIONS, IN_STRIDE, MATRIX_STRIDE, OUT_STRIDE.
static void FUNC(const int t, const int nt, __global const float *restrict in, __global const float *restrict matrix,
    __global float *restrict out PARAMETERS)
{
    __global const float *across = matrix, *down = matrix + MATRIX_STRIDE;
    for (int p = FIRST_UNIT(t, nt); p < FIRST_UNIT(t + 1, nt); p++) {
        const float x = in[p * IN_STRIDE], y = in[p * IN_STRIDE + 1];
        __global float *to = out + p * OUT_STRIDE;
        to[0] = across[0] * x + across[1] * y + across[3];
        to[1] = down[0] * x + down[1] * y + down[3];
        for (int i = 2; i < 16; i++)
            to[i] = i < DIMENSIONS ? in[p * IN_STRIDE + i] : 0.0f;
    }
}
