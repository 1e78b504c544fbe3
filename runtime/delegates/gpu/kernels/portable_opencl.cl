// What kernels of work-groups call that is not portable, in OpenCL C. docs/architecture.md describes their subset of C; a
// backend in another language has a text of its own in place of this one, and shares everything else.
// Arguments: floats that a kernel reads or writes, at least 16 bytes aligned, of which it sees the first by index 0.
#define INPUT(name) __global const float *restrict name
#define OUTPUT(name) __global float *restrict name
// One float, or the four from i on, i being a multiple of 4.
#define LOAD(buffer, i) ((buffer)[i])
#define LOAD4(buffer, i) (*(__global const float4 *)((buffer) + (i)))
// Where a buffer holds numbers of fewer bits: the word of 32 bits in the place of float i, or the two from i on, i being even.
#define LOAD_WORD(buffer, i) (((__global const uint *)(buffer))[i])
#define LOAD_WORDS2(buffer, i) (*(__global const uint2 *)((__global const uint *)(buffer) + (i)))
#define STORE(buffer, i, value) ((buffer)[i] = (value))
#define STORE_WORD(buffer, i, value) (((__global uint *)(buffer))[i] = (value))
#define STORE4(buffer, i, value) (*(__global float4 *)((buffer) + (i)) = (value))
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
