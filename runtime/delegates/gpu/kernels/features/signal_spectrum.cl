// The spectrum of real images: a Fourier transform of each row, then of each column, cropped or padded with zeros to
// HEIGHT and WIDTH, which are powers of two. A unit is one image.
// circle: cos(2 pi k / SIZE) for k < SIZE / 2, then as many sines. Complex numbers are two floats each.
// Defines: SIZE, the larger of HEIGHT and WIDTH.
// Parameters: IN_HEIGHT, IN_WIDTH, IN_STRIDE, HEIGHT, WIDTH, OUT_STRIDE (in complex numbers), TAIL (zeros behind each row).

// Decimation in time (Cooley and Tukey, 1965): the numbers lie in the order of their reversed indices.
static void LOCAL_NAME(transform)(float *re, float *im, const int count, __global const float *restrict circle)
{
    for (int span = 1; span < count; span *= 2)
        for (int first = 0; first < count; first += 2 * span)
            for (int i = 0; i < span; i++) {
                const int a = first + i, b = a + span, k = i * (SIZE / 2 / span);
                const float c = circle[k], s = circle[SIZE / 2 + k];
                const float x = re[b] * c + im[b] * s, y = im[b] * c - re[b] * s;
                re[b] = re[a] - x;
                im[b] = im[a] - y;
                re[a] += x;
                im[a] += y;
            }
}
static int LOCAL_NAME(reversed)(int i, const int count)
{
    int found = 0;
    for (int bit = 1; bit < count; bit *= 2, i >>= 1)
        found = found << 1 | (i & 1);
    return found;
}
static void FUNC(const int t, const int nt, __global const float *restrict in, __global const float *restrict circle,
    __global float *restrict out PARAMETERS)
{
    float re[SIZE], im[SIZE];
    const int columns = WIDTH / 2 + 1;
    for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++) {
        __global float *image = out + 2 * u * HEIGHT * OUT_STRIDE;
        for (int y = 0; y < HEIGHT; y++) {
            __global const float *row = in + (u * IN_HEIGHT + min(y, IN_HEIGHT - 1)) * IN_STRIDE;
            __global float *to = image + 2 * y * OUT_STRIDE;
            for (int x = 0; x < WIDTH; x++) {
                const int place = LOCAL_NAME(reversed)(x, WIDTH);
                re[place] = y < IN_HEIGHT && x < IN_WIDTH ? row[x] : 0.0f;
                im[place] = 0.0f;
            }
            LOCAL_NAME(transform)(re, im, WIDTH, circle);
            for (int x = 0; x < columns + TAIL; x++) {
                to[2 * x] = x < columns ? re[x] : 0.0f;
                to[2 * x + 1] = x < columns ? im[x] : 0.0f;
            }
        }
        if (HEIGHT == 1)
            continue;
        for (int x = 0; x < columns; x++) {
            for (int y = 0; y < HEIGHT; y++) {
                const int place = LOCAL_NAME(reversed)(y, HEIGHT);
                re[place] = image[2 * (y * OUT_STRIDE + x)];
                im[place] = image[2 * (y * OUT_STRIDE + x) + 1];
            }
            LOCAL_NAME(transform)(re, im, HEIGHT, circle);
            for (int y = 0; y < HEIGHT; y++) {
                image[2 * (y * OUT_STRIDE + x)] = re[y];
                image[2 * (y * OUT_STRIDE + x) + 1] = im[y];
            }
        }
    }
}
