// The entry of all programs on a CPU device of PoCL: runs layers [first, last) of a table, whose rows begin with the number
// of a function in `functions`. It is compiled once for a device: functions are called by their addresses, each with its
// row, and come from wherever they were compiled.
// One enqueue may run one layer (any number of groups), or many with a spin barrier between two layers; the latter
// needs all groups to run at the same time: the host launches no more groups than the device has threads.
// The barrier joins work-groups, whose memory OpenCL 1.2's mem_fence does not order: it needs fences of the whole
// device, which PoCL's clang has.
#define DEVICE_FENCE __c11_atomic_thread_fence(__ATOMIC_SEQ_CST)
#ifdef __AVX512F__
#define FURTHER_REGISTERS \
    , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", \
        "xmm29", "xmm30", "xmm31", "k1", "k2", "k3", "k4", "k5", "k6", "k7"
#else
#define FURTHER_REGISTERS
#endif

// OpenCL C has no pointers to functions, so this is a call by the x86-64 psABI: four arguments in rdi, rsi, rdx and rcx, the
// stack aligned (to 64 bytes, as PoCL's kernels may expect), the 128 bytes below it untouched, as they may be in use.
// rsp is kept in r12, which the callee preserves; whatever the callee may change is lost, vector registers included.
static void call_function(ulong function, __global uchar *arena, __global const uchar *constants, __global const int *row,
    ulong workers)
{
    ulong first = (ulong)arena, second = (ulong)constants, third = (ulong)row;
    __asm__ volatile("movq %%rsp, %%r12\n\t"
                     "subq $128, %%rsp\n\t"
                     "andq $-64, %%rsp\n\t"
                     "callq *%%rax\n\t"
                     "movq %%r12, %%rsp"
                     : "+a"(function), "+D"(first), "+S"(second), "+d"(third), "+c"(workers)
                     :
                     : "r8", "r9", "r10", "r11", "r12", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
                     "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                     "xmm15" FURTHER_REGISTERS);
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void run_layers(__global uchar *arena,
    __global const uchar *constants, __global const int *table, __global const ulong *functions, __global int *counter,
    const int first, const int last)
{
    const ulong t = get_group_id(0), nt = get_num_groups(0);
    int expected = 0;
    for (int layer = first; layer < last; layer++) {
        __global const int *row = table + table[layer];
        call_function(functions[row[0]], arena, constants, row, t | nt << 32);
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
