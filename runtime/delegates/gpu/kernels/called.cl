// The entry of one function that run_layers calls by its address: KERNEL is its name, CALL its call, made by source.py, with
// what stands in `row`. `workers` holds the number of the worker in its low half, how many there are in its high half.
// The driver makes machine code of a kernel when it first runs it: without a row it does nothing else.
//
// A caller's own memory may lie further from the arena than an offset reaches. Then the offset is INT_MIN and the number of
// integers from the row to the address.
#undef ARENA
#define ARENA(i) in_arena_or_beyond(arena, row, row[i])
#ifndef IN_ARENA_OR_BEYOND
#define IN_ARENA_OR_BEYOND
#define NEAREST_LINE (-(1 << 30))
static inline __global void *in_arena_or_beyond(__global uchar *arena, __global const int *row, const int line)
{
    if (line >= NEAREST_LINE)
        return arena + (long)line * LINE;
    __global const uint *address = (__global const uint *)row + (line - INT_MIN);
    return (__global void *)((ulong)address[0] | (ulong)address[1] << 32);
}
#endif

__kernel WIDE_VECTORS __attribute__((reqd_work_group_size(1, 1, 1))) void KERNEL(__global uchar *arena,
    __global const uchar *constants, __global const int *row, const ulong workers)
{
    if (row == 0)
        return;
    const int t = (int)workers, nt = (int)(workers >> 32);
    CALL;
}
