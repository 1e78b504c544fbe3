// The entry of one function that run_layers calls by its address: KERNEL is its name, CALL its call, made by source.py, with
// what stands in `row`. `workers` holds the number of the worker in its low half, how many there are in its high half.
// The driver makes machine code of a kernel when it first runs it: without a row it does nothing else.
__kernel WIDE_VECTORS __attribute__((reqd_work_group_size(1, 1, 1))) void KERNEL(__global uchar *arena,
    __global const uchar *constants, __global const int *row, const ulong workers)
{
    if (row == 0)
        return;
    const int t = (int)workers, nt = (int)(workers >> 32);
    CALL;
}
