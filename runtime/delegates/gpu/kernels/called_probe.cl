// The function by which calls by address are tried: doubles UNITS vectors of 16, in all lanes of vector registers.
static void double_vectors(const int t, const int nt, __global const float *in, __global float *out, const int units)
{
    for (int u = units * t / nt; u < units * (t + 1) / nt; u++)
        store16(load16(in + 16 * u) * 2.0f, out + 16 * u);
}
