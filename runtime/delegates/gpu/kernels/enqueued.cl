// The entry of one unit function where each is a kernel: KERNEL is its name, CALL its call, made by source.py, with what
// stands in the row of `layer`. Buffers with an offset would need objects of their own. Each unit has a group of one item.
__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel WIDE_VECTORS void KERNEL(__global uchar *arena, __global const uchar *constants,
    __global const int *table, const int layer)
{
    // The driver makes machine code of a kernel when it first runs it: without a table it does nothing else.
    if (table == 0)
        return;
    const int t = get_group_id(0), nt = get_num_groups(0);
    __global const int *row = table + table[layer];
    CALL;
}
