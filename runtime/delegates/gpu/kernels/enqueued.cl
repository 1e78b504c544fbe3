// The entry of one function on a GPU: KERNEL is its name, CALL its call, made by program.py.
// Offsets come in one argument, as buffers with an offset would need objects of their own. A unit function has a
// group of one item for each unit; another function reads its own ids, and t and nt are unused.
#define ARENA(i) ((__global void *)(arena + (size_t)offsets.s##i * LINE))
#define CONSTANT(i) ((__global const void *)(constants + (size_t)offsets.s##i * LINE))
#if UNIT_FUNCTION
__attribute__((reqd_work_group_size(1, 1, 1)))
#endif
__kernel void KERNEL(__global uchar *arena, __global const uchar *constants, const int16 offsets)
{
    const int t = get_group_id(0), nt = get_num_groups(0);
    (void)t;
    (void)nt;
    CALL;
}
#undef ARENA
#undef CONSTANT
