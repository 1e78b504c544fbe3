// Trials of numbers narrower than float32, one for each define: the values of Trial in precision.py. precision_child.py
// knows the results. memory: 64 bytes to write narrow numbers to. BF16_PACE has two kernels instead, which
// are timed by their events.
#if (defined(BF16_PRODUCTS) || defined(BF16_PACE) || defined(INT8_PRODUCTS) || defined(BYTE_TABLES)) && !defined(__AVX512F__)
#error the device has no vectors of 512 bits
#endif
#if defined(INT16_PRODUCTS) && !defined(__AVX2__)
#error the device has no integers in vectors of 256 bits
#endif
#ifndef BF16_PACE
#ifdef FP16_ARITHMETIC
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#endif
__kernel void trial(__global const float *in, __global float *out, __global uchar *memory)
{
#ifdef FP16_STORAGE
    for (int i = 0; i < 16; i++)
        vstore_half_rte(in[i], i, (__global half *)memory);
    vstore16(vload_half16(0, (__global const half *)memory), 0, out);
#endif
#ifdef FP16_ARITHMETIC
    for (int i = 0; i < 16; i++) {
        const half x = (half)in[i];
        out[i] = (float)(x * x);
    }
#endif
#ifdef BF16_STORAGE
    __global ushort *narrow = (__global ushort *)memory;
    for (int i = 0; i < 16; i++)
        narrow[i] = (ushort)(as_uint(in[i]) >> 16);
    vstore16(as_float16(convert_uint16(vload16(0, narrow)) << 16), 0, out);
#endif
#ifdef BF16_PRODUCTS
    // Lane i: in[i] * in[i] twice, added to in[i].
    const uint16 bits = as_uint16(vload16(0, in)) >> 16, pairs = bits | bits << 16;
    float16 sum = vload16(0, in);
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(pairs), "v"(pairs));
    vstore16(sum, 0, out);
#endif
#ifdef INT8_PRODUCTS
    // Lane i: 100 + 200 * w + 255 * w + 1 * w + 128 * w of the byte w = -(i + 1), and of 0 in the last lane.
    const int16 lane = (int16)(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0), byte = -lane & 255;
    const int16 bytes = (int16)(200 | 255 << 8 | 1 << 16 | (int)(128u << 24));
    const int16 weights = byte | byte << 8 | byte << 16 | byte << 24;
    int16 total = (int16)100;
    __asm__("vpdpbusd %2, %1, %0" : "+v"(total) : "v"(bytes), "v"(weights));
    // Lane i: 3 * i - 2 * i more, by pairs of shorts, i being 0 in the last lane.
    __asm__("vpdpwssd %2, %1, %0" : "+v"(total) : "v"((int16)(3 | (int)(0xfffeu << 16))), "v"(lane | lane << 16));
    vstore16(convert_float16(total), 0, out);
#endif
#ifdef INT16_PRODUCTS
    // Lane i: 100 + 583 * s - 2 * s of the short s = -(i + 1), and of 0 in the last lane.
    const int16 lane = (int16)(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0), shorts = -lane & 0xffff;
    const int8 pair = (int8)(583 | (int)(0xfffeu << 16));
    int8 low, high;
    __asm__("vpmaddwd %2, %1, %0" : "=x"(low) : "x"(pair), "x"(shorts.lo | shorts.lo << 16));
    __asm__("vpmaddwd %2, %1, %0" : "=x"(high) : "x"(pair), "x"(shorts.hi | shorts.hi << 16));
    vstore16(convert_float16((int16)(low, high) + 100), 0, out);
#endif
#ifdef BYTE_TABLES
    // The table has 127 - i at i. Lane i: 124 - 7 * i, as its first byte is 7 * i + 3 and the others are 127.
    const int16 lane = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), four = lane * (int)0x04040404;
    const int16 first = (int)0x7c7d7e7f - four, second = (int)0x3c3d3e3f - four;
    int16 found = (7 * lane + 3) | 0x7f7f7f00;
    __asm__("vpermi2b %2, %1, %0" : "+v"(found) : "v"(first), "v"(second));
    vstore16(convert_float16(found), 0, out);
#endif
#ifdef BYTE_DOT_PRODUCTS
#ifndef __opencl_c_integer_dot_product_input_4x8bit_packed
#error the compiler has no dot product of packed bytes
#endif
    // The same products as in INT8_PRODUCTS, of bytes without a sign by bytes with one.
    for (int i = 0; i < 16; i++)
        out[i] = (float)(100 + dot_4x8packed_us_int(200 | 255 << 8 | 1 << 16 | 128u << 24, (-(i + 1 & 15) & 255) * 0x01010101u));
#endif
}
#else
// Eight sums hide the latency of an instruction. `out` keeps them, so that none is left out.
#define PACE(name, instruction) \
    __kernel void name(__global float *out, const int rounds) \
    { \
        const float16 x = vload16(0, out); \
        float16 sum[8]; \
        for (int i = 0; i < 8; i++) \
            sum[i] = x; \
        for (int round = 0; round < rounds; round++) { \
            _Pragma("unroll") for (int i = 0; i < 8; i++) \
                __asm__(instruction " %1, %1, %0" : "+v"(sum[i]) : "v"(x)); \
        } \
        for (int i = 0; i < 8; i++) \
            vstore16(sum[i], i, out); \
    }
PACE(pairs, "vdpbf16ps")
PACE(floats, "vfmadd231ps")
#endif
