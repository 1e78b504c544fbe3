// The entry of all programs on a CPU device of PoCL: runs layers [first, last) of a table, whose rows begin with the number
// of a function in `functions`. It is compiled once for a device: functions are called by their addresses, each with its
// row, and come from wherever they were compiled.
// One enqueue may run one layer, or many. Then each layer is cut into PIECES shares for each group, and a group takes its own
// shares, and those of others that nobody has taken. So a group waits behind a layer only for shares that others are
// computing: one whose thread has no core, or that begins when the rest has ended, holds up nobody.
// Shares join work-groups, whose memory OpenCL 1.2's mem_fence does not order: they need fences of the whole device, which
// PoCL's clang has.
#define DEVICE_FENCE __c11_atomic_thread_fence(__ATOMIC_SEQ_CST)

// Looks at a counter before a waiting group gives its core away: some 6 (AMD) to 15 microseconds (Intel). More waste a core
// that others could use.
#define LOOKS 256

// Times that it then gives its core away before it sleeps: half a microsecond each where nobody takes the core, so that a
// group sleeps only behind a share of more than 200 microseconds. To be woken takes up to 50 microseconds on a virtual
// machine: without these yields, mobilenet_v2 takes 1.4 times as long at two threads. Beside a loop that burns one of two
// CPUs they change nothing that can be measured, and with more groups than cores a group with work gets the core at once.
#define YIELDS 512

// Places of the counters: shares that are done and groups that sleep until all of a layer are, on a line of their own groups
// that have ended, and then for each share the layers in which it was taken. At the end of a launch they are 0 again.
#define DONE 0
#define ASLEEP 1
#define ENDED 16
#define TAKEN 32

// Shares of a layer for each group; by_address.py has as many counters. With one, a group whose core is slower, or was taken
// away for a while, keeps the others waiting for up to half of a layer. Each costs two atomic operations.
#define PIECES 4

// Times that a group yields until all others have begun, before threads are bound: 5 milliseconds on idle cores, where a
// thread is woken in a tenth of one; on busy ones each may take as long.
#define PATIENCE 10000
// Words of a set of CPUs: 1,024 of them.
#define SET_WORDS 16

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

// Linux's system calls: they change no registers but these.
static void system_call(ulong number, volatile __global int *first, ulong second, ulong third)
{
    // The fourth argument is none: to a futex, no limit of the time.
    __asm__ volatile("xorl %%r10d, %%r10d\n\t"
                     "syscall"
                     : "+a"(number)
                     : "D"(first), "S"(second), "d"(third)
                     : "rcx", "r10", "r11", "memory", "cc");
}

#define SCHED_YIELD 24
#define SCHED_SETAFFINITY 203
#define FUTEX 202
// Operations of a futex: sleeps while the word has a value, or wakes up all who sleep at it.
#define SLEEP_WHILE 128
#define WAKE 129

// Returns when that many shares are done.
static void wait_for(volatile __global int *counters, int enough)
{
    for (int look = 0; look < LOOKS && counters[DONE] < enough; look++)
        __asm__ volatile("pause");
    for (int yields = 0; yields < YIELDS && counters[DONE] < enough; yields++)
        system_call(SCHED_YIELD, 0, 0, 0);
    while (counters[DONE] < enough) {
        atomic_inc(counters + ASLEEP);
        DEVICE_FENCE;
        const int done = counters[DONE];
        if (done < enough)
            system_call(FUTEX, counters + DONE, SLEEP_WHILE, done);
        atomic_dec(counters + ASLEEP);
    }
    // What others stored is loaded behind this fence only.
    DEVICE_FENCE;
}

// Counts a share as done. `enough` of them are all up to the end of its layer, for which others may wait.
static void count_done(volatile __global int *counters, int enough)
{
    // What was stored must be visible before.
    DEVICE_FENCE;
    const int done = atomic_inc(counters + DONE) + 1;
    // Whoever counts as asleep behind this fence finds the layer done.
    DEVICE_FENCE;
    if (done == enough && counters[ASLEEP] > 0)
        system_call(FUTEX, counters + DONE, WAKE, INT_MAX);
}

// True for the one group that takes a share of the `number`-th layer of a launch, once all shares of those before are done.
static bool takes(volatile __global int *taken, int number)
{
    return *taken == number - 1 && atomic_cmpxchg(taken, number - 1, number) == number - 1;
}

// Binds the thread of this group to a CPU, where every group has a thread of its own: all have begun, and none has ended.
static void stay_on(const ulong cpu, volatile __global int *counters, const int groups)
{
    atomic_inc(counters + DONE);
    for (int yields = 0; yields < PATIENCE && counters[DONE] < groups; yields++)
        system_call(SCHED_YIELD, 0, 0, 0);
    if (counters[DONE] < groups)
        counters[ENDED] = 1;
    if (counters[ENDED])
        return;
    ulong set[SET_WORDS];
    for (int word = 0; word < SET_WORDS; word++)
        set[word] = word == (int)(cpu / 64) ? 1UL << cpu % 64 : 0;
    system_call(SCHED_SETAFFINITY, 0, sizeof(set), (ulong)set);
}

// With `last` before `first` nothing is run, and `functions` are CPUs.
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void run_layers(__global uchar *arena,
    __global const uchar *constants, __global const int *table, __global const ulong *functions,
    volatile __global int *counters, const int first, const int last)
{
    const int own = get_group_id(0), groups = get_num_groups(0);
    if (last < first) {
        stay_on(functions[own], counters, groups);
        return;
    }
    const bool are_taken = groups > 1 && last - first > 1;
    const int pieces = are_taken ? PIECES : 1, shares = groups * pieces;
    const ulong of_all = (ulong)shares << 32;
    for (int layer = first; layer < last; layer++) {
        __global const int *row = table + table[layer];
        const ulong function = functions[row[0]];
        if (!are_taken) {
            call_function(function, arena, constants, row, own | of_all);
            continue;
        }
        const int number = layer - first + 1;
        for (int i = 0; i < shares; i++) {
            // Its own first, whose inputs are in its caches as a rule.
            const int share = (own * pieces + i) % shares;
            if (!takes(counters + TAKEN + share, number))
                continue;
            call_function(function, arena, constants, row, share | of_all);
            count_done(counters, number * shares);
        }
        if (layer + 1 < last)
            wait_for(counters, number * shares);
    }
    if (are_taken && atomic_inc(counters + ENDED) + 1 == groups) {
        // The last group to end prepares the next launch: every share was done before the group ended that took it.
        counters[DONE] = counters[ENDED] = 0;
        for (int share = 0; share < shares; share++)
            counters[TAKEN + share] = 0;
    }
}
