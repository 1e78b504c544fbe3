// The rotated rectangle around a subset of landmarks, as the matrix that takes pixels of the crop to places in the image. One
// unit. Parameters: COUNT of the subset, LEFT, RIGHT, ROTATION, the scales over the crop's size SCALE_X and SCALE_Y, half of
// that size HALF_X and HALF_Y, IN_STRIDE, OUT_STRIDE.
static void FUNC(const int t, const int nt, __global const float *restrict in, __global const int *restrict subset,
    __global float *restrict out PARAMETERS)
{
    if (FIRST_UNIT(t, nt) == FIRST_UNIT(t + 1, nt))
        return;
    __global const float *left = in + LEFT * IN_STRIDE, *right = in + RIGHT * IN_STRIDE;
    const float angle = ROTATION - atan2(right[1] - left[1], right[0] - left[0]);
    const float c = cos(angle), s = sin(angle);
    float low_x = INFINITY, low_y = INFINITY, high_x = -INFINITY, high_y = -INFINITY;
    for (int i = 0; i < COUNT; i++) {
        __global const float *at = in + subset[i] * IN_STRIDE;
        const float x = c * at[0] - s * at[1], y = s * at[0] + c * at[1];
        low_x = fmin(low_x, x);
        low_y = fmin(low_y, y);
        high_x = fmax(high_x, x);
        high_y = fmax(high_y, y);
    }
    const float scale_x = SCALE_X * (high_x - low_x), scale_y = SCALE_Y * (high_y - low_y);
    const float x = (low_x + high_x) / 2.0f, y = (low_y + high_y) / 2.0f;
    const float rows[4][4] = {
        { c * scale_x, s * scale_y, 0.0f, c * x + s * y - c * scale_x * HALF_X - s * scale_y * HALF_Y },
        { -s * scale_x, c * scale_y, 0.0f, c * y - s * x + s * scale_x * HALF_X - c * scale_y * HALF_Y },
        { 0.0f, 0.0f, 1.0f, 0.0f },
        { 0.0f, 0.0f, 0.0f, 1.0f },
    };
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < 16; i++)
            out[r * OUT_STRIDE + i] = i < 4 ? rows[r][i] : 0.0f;
}
