// The entry of one function of work-groups: KERNEL is its name, GROUP the size of its work-groups, LOCALS declares their
// local memory, which in OpenCL C only a kernel may, and CALL is its call, made by source.py, with what stands in the row of
// `layer`. LINE are the bytes in which the frame counts the offsets of pointers, as in graph.py.
#define LINE 64
#define ARENA(i) ((__global void *)(arena + (size_t)row[i] * LINE))
#define CONSTANT(i) ((__global const void *)(constants + (size_t)row[i] * LINE))
#define INTEGER(i) (row[i])
#define REAL(i) as_float(row[i])
__kernel __attribute__((reqd_work_group_size(GROUP))) void KERNEL(__global uchar *arena, __global const uchar *constants,
    __global const int *table, const int layer)
{
    LOCALS
    // The driver makes machine code of a kernel when it first runs it: without a table it does nothing else.
    if (table == 0)
        return;
    __global const int *row = table + table[layer];
    CALL;
}
#undef LINE
#undef ARENA
#undef CONSTANT
#undef INTEGER
#undef REAL
