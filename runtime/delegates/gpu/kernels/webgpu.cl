// In front of the text of a kernel that is translated for WebGPU: words of OpenCL C as a parser of C reads them. The address
// space of a pointer follows from the buffer to which it is bound; for memory of a work-group C has no word of its own, so
// that one that kernels never use stands for it.
#define IN_WGSL
#define __kernel
#define __global
#define __constant
#define __private
#define __local _Thread_local
#define __attribute__(list)
#define inline
#define bool _Bool
