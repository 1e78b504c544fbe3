// The entry of a program on a CPU device of PoCL: runs layers [first, last) of a table. Its row begins with the number of
// a function; LAYER_CASES, made by source.py, has a CASE for each function, which calls it with the rest of the row.
// One enqueue may run one layer (any number of groups), or many with a spin barrier between two layers; the latter
// needs all groups to run at the same time: the host launches no more groups than the device has threads.
// The barrier joins work-groups, whose memory OpenCL 1.2's mem_fence does not order: it needs fences of the whole
// device, which PoCL's clang has.
#define DEVICE_FENCE __c11_atomic_thread_fence(__ATOMIC_SEQ_CST)
#define CASE(number, call) \
    case number: \
        call; \
        break;

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void run_layers(__global uchar *arena,
    __global const uchar *constants, __global const int *table, __global int *counter, const int first,
    const int last)
{
    const int t = get_group_id(0), nt = get_num_groups(0);
    int expected = 0;
    for (int layer = first; layer < last; layer++) {
        __global const int *row = table + table[layer];
        switch (row[0]) { LAYER_CASES }
        if (last - first > 1) {
            // What this group stored must be visible before it counts as arrived. The counter only grows within a
            // launch, so that no group can miss a barrier that others have left already.
            DEVICE_FENCE;
            expected += nt;
            const int arrived = atomic_inc(counter) + 1;
            if (layer + 1 < last) {
                while (*(volatile __global int *)counter < expected) { }
                // What the others stored before they arrived is loaded behind this fence only.
                DEVICE_FENCE;
            } else if (arrived == expected) {
                // The last group to end prepares the next launch; behind the last layer nobody waits.
                *counter = 0;
            }
        }
    }
}
