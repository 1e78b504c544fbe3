// What a device reaches at best (backends/opencl/peaks.py). VECTOR: its vectors of floats.

// rounds times eight multiply-adds of vectors that stay in registers and do not wait for one another.
__kernel void compute(__global float *out, int rounds, float by)
{
    VECTOR a = (VECTOR)((float)get_global_id(0)), b = a + 1, c = a + 2, d = a + 3, e = a + 4, f = a + 5, g = a + 6,
           h = a + 7;
    const VECTOR factor = (VECTOR)by;
    for (int i = 0; i < rounds; i++) {
        a = fma(a, factor, factor);
        b = fma(b, factor, factor);
        c = fma(c, factor, factor);
        d = fma(d, factor, factor);
        e = fma(e, factor, factor);
        f = fma(f, factor, factor);
        g = fma(g, factor, factor);
        h = fma(h, factor, factor);
    }
    const VECTOR sum = a + b + c + d + e + f + g + h;
    out[get_global_id(0)] = dot(sum.s0123, sum.s0123);
}

__kernel void copy(__global const VECTOR *from, __global VECTOR *to)
{
    to[get_global_id(0)] = from[get_global_id(0)];
}
