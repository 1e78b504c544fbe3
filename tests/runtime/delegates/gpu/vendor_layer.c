/* A layer of the OpenCL loader that makes PoCL behave like the driver of a GPU.

   The loader calls it in place of the driver (OPENCL_LAYERS). It has no headers of OpenCL: functions stand in
   the table of cl_icd.h in a fixed order, and the numbers are those of cl.h. What the driver does besides is
   chosen when the layer is built (vendor_box.py). */

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum {
    GET_PLATFORM_INFO = 1, GET_DEVICE_IDS = 2, GET_DEVICE_INFO = 3, CREATE_CONTEXT = 4, GET_QUEUE_INFO = 12,
    CREATE_BUFFER = 14, CREATE_WITH_BINARY = 27, GET_PROGRAM_INFO = 32, SET_KERNEL_ARG = 38,
    GET_KERNEL_INFO = 39, GET_WORK_GROUP_INFO = 40, WAIT_FOR_EVENTS = 41, FINISH = 47, READ_BUFFER = 48, ND_RANGE = 59,
    FILL_BUFFER = 102, MOST_ENTRIES = 512
};

typedef int32_t error;
typedef void *any;

static any table[MOST_ENTRIES];
static const any *driver;
static any devices[64];
static unsigned device_count;

static error text(const char *content, size_t size, any value, size_t *needed)
{
    if (needed) *needed = strlen(content) + 1;
    if (!value) return 0;
    if (size < strlen(content) + 1) return -30;
    strcpy(value, content);
    return 0;
}

static error bytes(const void *content, size_t length, size_t size, any value, size_t *needed)
{
    if (needed) *needed = length;
    if (!value) return 0;
    if (size < length) return -30;
    memcpy(value, content, length);
    return 0;
}

/* Launches on the faulty device. Its fault lasts, or goes with a file. */
static int launches;
static int has_fault(int since)
{
    return since && launches >= since && (!*FAULT_FILE || !access(FAULT_FILE, F_OK));
}

/* Every call to a lost device fails. */
static int is_lost(void) { return has_fault(LOST_AT); }

/* What waits for a device that hangs does not return. */
static void wait_for_device(void)
{
    while (has_fault(HANGS_AT)) usleep(10000);
}

static error platform_info(any platform, uint32_t name, size_t size, any value, size_t *needed)
{
    switch (name) {
    case 0x0901: return text("OpenCL 3.0 CUDA 13.1.0", size, value, needed);
    case 0x0902: return text("NVIDIA CUDA", size, value, needed);
    case 0x0903: return text("NVIDIA Corporation", size, value, needed);
    }
    return ((error (*)(any, uint32_t, size_t, any, size_t *))driver[GET_PLATFORM_INFO])(
        platform, name, size, value, needed);
}

static error device_ids(any platform, uint64_t type, uint32_t most, any *found, uint32_t *count)
{
    error failed;
    if (type == 2) return -1;
    failed = ((error (*)(any, uint64_t, uint32_t, any *, uint32_t *))driver[GET_DEVICE_IDS])(
        platform, 0xFFFFFFFF, 64, devices, &device_count);
    if (failed) return failed;
    if (count) *count = device_count;
    for (unsigned i = 0; found && i < most && i < device_count; i++) found[i] = devices[i];
    return 0;
}

static error driver_device_info(any device, uint32_t name, size_t size, any value, size_t *needed)
{
    return ((error (*)(any, uint32_t, size_t, any, size_t *))driver[GET_DEVICE_INFO])(
        device, name, size, value, needed);
}

static uint64_t memory_of(any device)
{
    uint64_t memory = (uint64_t)MEMORY_MIB << 20;
    if (!memory) driver_device_info(device, 0x101F, sizeof memory, &memory, 0);
    return memory;
}

static uint64_t largest_allocation(any device) { return memory_of(device) / 4; }

static int is_faulty(any queue)
{
    any device = 0;
    ((error (*)(any, uint32_t, size_t, any, size_t *))driver[GET_QUEUE_INFO])(
        queue, 0x1091, sizeof device, &device, 0);
    return device == devices[FAULTY_DEVICE];
}

static error device_info(any device, uint32_t name, size_t size, any value, size_t *needed)
{
    const uint64_t gpu = 4, largest = largest_allocation(device), memory = memory_of(device);
    const size_t group = 1024;
    const uint32_t no = 0, one = 1;
    unsigned char uuid[16] = "made by a layer";
    switch (name) {
    case 0x1000: return bytes(&gpu, sizeof gpu, size, value, needed);
    case 0x1004: return bytes(&group, sizeof group, size, value, needed);
    case 0x1010: return bytes(&largest, sizeof largest, size, value, needed);
    case 0x101F: return bytes(&memory, sizeof memory, size, value, needed);
    case 0x1035: return bytes(&no, sizeof no, size, value, needed);
    case 0x103A: return bytes(&one, sizeof one, size, value, needed);
    case 0x102B: return text("NVIDIA H200", size, value, needed);
    case 0x102C: return text("NVIDIA Corporation", size, value, needed);
    case 0x102D: return text("590.44", size, value, needed);
    case 0x102F: return text("OpenCL 3.0 CUDA", size, value, needed);
    case 0x1030:
        return text("cl_khr_global_int32_base_atomics cl_khr_fp64 cl_khr_icd cl_khr_device_uuid", size,
                    value, needed);
    case 0x106A:
        for (unsigned i = 0; i < device_count; i++)
            if (devices[i] == device) uuid[15] = (unsigned char)i;
        return bytes(uuid, sizeof uuid, size, value, needed);
    }
    return driver_device_info(device, name, size, value, needed);
}

#ifdef EXCLUSIVE
/* One process at a time has contexts, as in the compute mode EXCLUSIVE_PROCESS. */
static any create_context(any properties, uint32_t count, any *of, any told, any user, error *failed)
{
    static int held = -1;
    if (held < 0) {
        held = open(EXCLUSIVE, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        if (held < 0 || flock(held, LOCK_EX | LOCK_NB)) {
            close(held);
            held = -1;
            if (failed) *failed = -2;
            return 0;
        }
    }
    return ((any (*)(any, uint32_t, any *, any, any, error *))driver[CREATE_CONTEXT])(
        properties, count, of, told, user, failed);
}
#endif

static any create_buffer(any context, uint64_t flags, size_t size, any host, error *failed)
{
    const error why = is_lost() ? -5 : size > largest_allocation(devices[0]) ? -61 : 0;
    if (why) {
        if (failed) *failed = why;
        return 0;
    }
    return ((any (*)(any, uint64_t, size_t, any, error *))driver[CREATE_BUFFER])(
        context, flags, size, host, failed);
}

static any create_with_binary(any context, uint32_t count, const any *of, const size_t *sizes,
                              const unsigned char **binaries, error *status, error *failed)
{
    const size_t inner = sizes[0] < 8 ? 0 : sizes[0] - 8;
    const unsigned char *from = binaries[0] + 8;
    if (REFUSES_BINARIES || count != 1 || !inner) {
        if (status) *status = -42;
        if (failed) *failed = -42;
        return 0;
    }
    return ((any (*)(any, uint32_t, const any *, const size_t *, const unsigned char **, error *, error *))
                driver[CREATE_WITH_BINARY])(context, count, of, &inner, &from, status, failed);
}

/* In front of each binary stands a number that no two of them share. */
static error program_info(any program, uint32_t name, size_t size, any value, size_t *needed)
{
    static uint32_t made;
    error (*ask)(any, uint32_t, size_t, any, size_t *) = (any)driver[GET_PROGRAM_INFO];
    uint32_t mark[2] = {(uint32_t)getpid(), made++};
    error failed;
    if (name == 0x1166 && value) {
        unsigned char *whole = *(unsigned char **)value, *behind = whole + sizeof mark;
        failed = ask(program, name, size, &behind, needed);
        memcpy(whole, mark, sizeof mark);
        return failed;
    }
    failed = ask(program, name, size, value, needed);
    if (name == 0x1165 && value && !failed) *(size_t *)value += sizeof mark;
    return failed;
}

static error set_kernel_arg(any kernel, uint32_t index, size_t size, const void *value)
{
    static const any none;
    if (REFUSES_NULL && (!value || (size == sizeof none && !memcmp(value, &none, size)))) return -38;
    return ((error (*)(any, uint32_t, size_t, const void *))driver[SET_KERNEL_ARG])(kernel, index, size, value);
}

/* The largest group of a kernel: LIMITED are parts of names, with commas around each. */
static size_t largest_group(any kernel)
{
    char name[256] = "", part[64];
    const char *from = LIMITED, *to;
    ((error (*)(any, uint32_t, size_t, any, size_t *))driver[GET_KERNEL_INFO])(
        kernel, 0x1190, sizeof name, name, 0);
    for (; *from && (to = strchr(from + 1, ',')); from = to) {
        snprintf(part, sizeof part, "%.*s", (int)(to - from - 1), from + 1);
        if (strstr(name, part)) return LARGEST_GROUP;
    }
    return 1024;
}

static error work_group_info(any kernel, any device, uint32_t name, size_t size, any value, size_t *needed)
{
    const size_t most = largest_group(kernel);
    if (name == 0x11B0) return bytes(&most, sizeof most, size, value, needed);
    return ((error (*)(any, any, uint32_t, size_t, any, size_t *))driver[GET_WORK_GROUP_INFO])(
        kernel, device, name, size, value, needed);
}

static error nd_range(any queue, any kernel, uint32_t dimensions, const size_t *offset, const size_t *global,
                      const size_t *local, uint32_t waits, const any *wait, any *event)
{
    size_t items = 1;
    for (uint32_t i = 0; local && i < dimensions; i++) items *= local[i];
    if (items > largest_group(kernel)) return -54;
    launches += is_faulty(queue);
    if (is_lost() && !(FAILS_LATER && launches == LOST_AT)) return -5;
    if (event && EVENT_US) usleep(EVENT_US);
    return ((error (*)(any, any, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t,
                       const any *, any *))driver[ND_RANGE])(
        queue, kernel, dimensions, offset, global, local, waits, wait, event);
}

static error finish(any queue)
{
    wait_for_device();
    return is_lost() ? -5 : ((error (*)(any))driver[FINISH])(queue);
}

static error wait_for_events(uint32_t count, const any *events)
{
    wait_for_device();
    return is_lost() ? -14 : ((error (*)(uint32_t, const any *))driver[WAIT_FOR_EVENTS])(count, events);
}

static error read_buffer(any q, any b, uint32_t blocks, size_t at, size_t n, any to, uint32_t c, any w, any e)
{
    if (blocks) wait_for_device();
    return is_lost() ? -5
                     : ((error (*)(any, any, uint32_t, size_t, size_t, any, uint32_t, any, any))
                            driver[READ_BUFFER])(q, b, blocks, at, n, to, c, w, e);
}

static error fill_buffer(any q, any b, any p, size_t ps, size_t at, size_t n, uint32_t c, any w, any e)
{
    return is_lost() ? -5
                     : ((error (*)(any, any, any, size_t, size_t, size_t, uint32_t, any, any))
                            driver[FILL_BUFFER])(q, b, p, ps, at, n, c, w, e);
}

error clGetLayerInfo(uint32_t name, size_t size, any value, size_t *needed)
{
    const uint32_t version = 100;
    if (name == 0x4240) return bytes(&version, sizeof version, size, value, needed);
    return name == 0x4241 ? text("a vendor's driver", size, value, needed) : -30;
}

error clInitLayer(uint32_t count, const any *target, uint32_t *own_count, const any **own)
{
    if (count > MOST_ENTRIES) count = MOST_ENTRIES;
    driver = target;
    memcpy(table, target, count * sizeof *table);
    table[GET_PLATFORM_INFO] = (any)platform_info;
    table[GET_DEVICE_IDS] = (any)device_ids;
    table[GET_DEVICE_INFO] = (any)device_info;
#ifdef EXCLUSIVE
    table[CREATE_CONTEXT] = (any)create_context;
#endif
    table[CREATE_BUFFER] = (any)create_buffer;
    table[CREATE_WITH_BINARY] = (any)create_with_binary;
    table[GET_PROGRAM_INFO] = (any)program_info;
    table[SET_KERNEL_ARG] = (any)set_kernel_arg;
    table[GET_WORK_GROUP_INFO] = (any)work_group_info;
    table[ND_RANGE] = (any)nd_range;
    table[FINISH] = (any)finish;
    table[WAIT_FOR_EVENTS] = (any)wait_for_events;
    table[READ_BUFFER] = (any)read_buffer;
    table[FILL_BUFFER] = (any)fill_buffer;
    *own_count = count;
    *own = table;
    return 0;
}
