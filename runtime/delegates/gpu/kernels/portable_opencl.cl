// What kernels of work-groups call that is not portable, in OpenCL C. docs/architecture.md describes their subset of C; a
// backend in another language has a text of its own in place of this one, and shares everything else.
// Arguments: floats that a kernel reads or writes, at least 16 bytes aligned, of which it sees the first by index 0.
#define INPUT(name) __global const float *restrict name
#define OUTPUT(name) __global float *restrict name
// One float, or the four from i on, i being a multiple of 4.
#define LOAD_F32(buffer, i) ((buffer)[i])
#define LOAD4_F32(buffer, i) (*(__global const float4 *)((buffer) + (i)))
#define LOAD(buffer, i) LOAD_F32(buffer, i)
#define LOAD4(buffer, i) LOAD4_F32(buffer, i)
// Where a buffer holds numbers of fewer bits: the word of 32 bits in the place of float i, or the two from i on, i being even.
#define LOAD_WORD(buffer, i) (((__global const uint *)(buffer))[i])
#define LOAD_WORDS2(buffer, i) (*(__global const uint2 *)((__global const uint *)(buffer) + (i)))
#define STORE(buffer, i, value) ((buffer)[i] = (value))
#define STORE_WORD(buffer, i, value) (((__global uint *)(buffer))[i] = (value))
#define STORE4_F32(buffer, i, value) (*(__global float4 *)((buffer) + (i)) = (value))
#define STORE4(buffer, i, value) STORE4_F32(buffer, i, value)
#define VEC4(a, b, c, d) ((float4)(a, b, c, d))
#define SPLAT4(a) ((float4)(a))
// Places of a work-item; the dimension is a literal.
#define LOCAL_ID(dimension) ((int)get_local_id(dimension))
#define GROUP_ID(dimension) ((int)get_group_id(dimension))
#define GLOBAL_ID(dimension) ((int)get_global_id(dimension))
#define GLOBAL_SIZE(dimension) ((int)get_global_size(dimension))
// All work-items of a group wait for each other, and see what the others stored in local memory.
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)

// i, which is not negative, divided by a number whose reciprocal parameters.py has made: see `reciprocal` there. The shift is
// 31 where that number is 1. In one shift over both halves of the product, a compiler would use an intrinsic that Oclgrind
// does not know.
static inline int quotient(int i, int multiplier, int shift)
{
    return shift > 31 ? (int)(mul_hi((uint)i, (uint)multiplier) >> (shift - 32)) : i;
}

// x * multiplier * 2^(left - right - 31), rounded twice as multiplied16 of common.cl.
static inline int multiplied(int x, int multiplier, int left, int right)
{
    const int high = (int)(((long)(x << left) * multiplier + (1L << 30)) >> 31);
    const int middle = (1 << right) >> 1;
    return (high + middle - (middle > 0 && high < 0)) >> right;
}
// sum and the products of the four bytes of a, which have no sign, by those of b, which have one.
static inline int add_bytes(int sum, int a, int b)
{
#if defined(__NVPTX__) && __CUDA_ARCH__ >= 610
    int total;
    __asm__("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(total) : "r"(a), "r"(b), "r"(sum));
    return total;
#elif defined(__opencl_c_integer_dot_product_input_4x8bit_packed)
    return sum + dot_4x8packed_us_int((uint)a, (uint)b);
#else
    return sum + ((a & 255) * (b << 24 >> 24) + (a >> 8 & 255) * (b << 16 >> 24))
        + ((a >> 16 & 255) * (b << 8 >> 24) + (a >> 24 & 255) * (b >> 24));
#endif
}
// The same of four sums by four ints.
static inline int4 add_bytes4(int4 sum, int a, int4 b)
{
    return (int4)(add_bytes(sum.x, a, b.x), add_bytes(sum.y, a, b.y), add_bytes(sum.z, a, b.z), add_bytes(sum.w, a, b.w));
}

// Products by a GPU's matrix units. A warp, 32 neighbouring work-items, adds the product of 16 x K and K x 8 numbers to 16 x 8
// floats: of 16 numbers along k with 16 bits, in pairs of which the first is the low half of a word, or of 8 of TF32, each a
// word. Each work-item holds words of both sides and sums, as PTX lays out the fragments of mma.m16n8k16 and mma.m16n8k8 (PTX
// ISA, warp-level matrix instructions), `lane` being its number in the warp. a: of the left side word lane % 4 of row lane / 4;
// in y and w of the row 8 further down, in z and w word lane % 4 + 4. b: of the right side the same of column lane / 4, in y word
// lane % 4 + 4. sum: row lane / 4, columns lane % 4 * 2 and the next; in z and w 8 rows further down.
// part_TYPE: the `part`-th uint2 with numbers of a quad, rounded to the type: both pairs of 16 bits, or two numbers of TF32.
// `exchange`: 6 words for each work-item of the group, by which they give each other their parts where there is no instruction
// for it: to prove the layout, not for speed. All work-items of the group take part; `item` is a work-item's number there.
#ifdef __NVPTX__
#define PAIR(TYPE, ptx) \
    static inline uint pair_##TYPE(float first, float second) \
    { \
        uint pair; \
        __asm__("cvt.rn." ptx "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first)); \
        return pair; \
    }
static inline uint word_TF32(float x)
{
    uint word;
    __asm__("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(x));
    return word;
}
#define MATRIX_UNIT(TYPE, shape, ptx) \
    static inline float4 multiply_##TYPE(uint4 a, uint2 b, float4 sum, int item, __local uint *exchange) \
    { \
        float x = sum.x, y = sum.y, z = sum.z, w = sum.w; \
        __asm__("mma.sync.aligned." shape ".row.col.f32." ptx "." ptx ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \
                "{%0, %1, %2, %3};" \
                : "+f"(x), "+f"(y), "+f"(z), "+f"(w) \
                : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y)); \
        return (float4)(x, y, z, w); \
    }
PAIR(F16, "f16")
PAIR(BF16, "bf16")
MATRIX_UNIT(F16, "m16n8k16", "f16")
MATRIX_UNIT(BF16, "m16n8k16", "bf16")
MATRIX_UNIT(TF32, "m16n8k8", "tf32")
#else
static inline float half_of(uint bits);
#define wide_F16(bits) half_of((bits) & 0xffffu)
// The bits of the nearest fp16, ties to even.
static inline uint half_bits(float x)
{
    const uint magnitude = as_uint(x) & 0x7fffffffu;
    const uint normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
    // Behind 0.5 a float32 has no more digits than a denormal fp16.
    const uint tiny = as_uint(as_float(magnitude) + 0.5f) - 0x3f000000u;
    const uint finite = magnitude < 0x38800000u ? tiny : min(normal, 0x7c00u);
    return (as_uint(x) >> 16 & 0x8000u) | (magnitude > 0x7f800000u ? 0x7e00u : finite);
}
static inline uint pair_F16(float first, float second) { return half_bits(first) | half_bits(second) << 16; }
// The nearest, ties to even; of a NaN the bits that it keeps, and the quiet one.
static inline uint pair_BF16(float first, float second)
{
    const uint2 bits = as_uint2((float2)(first, second)), nearest = bits + 0x7fffu + (bits >> 16 & 1u);
    const uint low = first == first ? nearest.x : bits.x | 0x400000u;
    const uint high = second == second ? nearest.y : bits.y | 0x400000u;
    return low >> 16 | (high & 0xffff0000u);
}
#define wide_BF16(bits) as_float((bits) << 16)
// The nearest with 10 bits behind the point, ties away from zero, as cvt.rna.
static inline uint word_TF32(float x)
{
    return (x == x ? as_uint(x) + 0x1000u : 0x7fffffffu) & 0xffffe000u;
}
#define wide_TF32(bits) as_float(bits)
// Inlined by all means: as a function, it names `exchange` by itself, and PoCL gives each group only what its kernel names.
#define MATRIX_UNIT(TYPE, NUMBERS) \
    static inline __attribute__((always_inline)) float4 multiply_##TYPE(uint4 a, uint2 b, float4 sum, int item, \
        __local uint *exchange) \
    { \
        const int lane = item % 32; \
        __local uint *warp = exchange + (item - lane) * 6; \
        __local uint *own = warp + lane * 6; \
        own[0] = a.x; \
        own[1] = a.y; \
        own[2] = a.z; \
        own[3] = a.w; \
        own[4] = b.x; \
        own[5] = b.y; \
        barrier(CLK_LOCAL_MEM_FENCE); \
        float total[4] = {sum.x, sum.y, sum.z, sum.w}; \
        for (int i = 0; i < 4; i++) { \
            const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2; \
            for (int k = 0; k < 8 * NUMBERS; k++) { \
                const int word = k / NUMBERS, low = k % NUMBERS * 16; \
                const uint left = warp[(row % 8 * 4 + word % 4) * 6 + row / 8 + word / 4 * 2] >> low; \
                const uint right = warp[(column * 4 + word % 4) * 6 + 4 + word / 4] >> low; \
                total[i] += wide_##TYPE(left) * wide_##TYPE(right); \
            } \
        } \
        barrier(CLK_LOCAL_MEM_FENCE); \
        return (float4)(total[0], total[1], total[2], total[3]); \
    }
MATRIX_UNIT(F16, 2)
MATRIX_UNIT(BF16, 2)
MATRIX_UNIT(TF32, 1)
#endif
#define part_F16(v, part) (uint2)(pair_F16((v).x, (v).y), pair_F16((v).z, (v).w))
#define part_BF16(v, part) (uint2)(pair_BF16((v).x, (v).y), pair_BF16((v).z, (v).w))
#define part_TF32(v, part) ((part) ? (uint2)(word_TF32((v).z), word_TF32((v).w)) : (uint2)(word_TF32((v).x), word_TF32((v).y)))
