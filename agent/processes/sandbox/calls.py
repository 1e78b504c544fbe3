"""System calls by name: their numbers on each architecture, and the ones that a runner may make.

`recorded.json` holds the calls of the probe and of each delegate, as `python -m benchmarks.system_calls`
found them under strace. `numbers.json` holds the numbers of asm/unistd_64.h (x86-64) and of
asm-generic/unistd.h (aarch64); null where an architecture has no such call.
"""

import json
from functools import cache
from pathlib import Path
from typing import Final

RECORDED: Final = Path(__file__).with_name("recorded.json")
_NUMBERS: Final = Path(__file__).with_name("numbers.json")

MACHINES: Final = ("x86_64", "aarch64")
"""The architectures, in the order of `numbers.json`."""

_FAMILIES: Final = (
    "open openat openat2 creat",
    "stat fstat lstat newfstatat statx",
    "statfs fstatfs",
    "access faccessat faccessat2",
    "readlink readlinkat",
    "mkdir mkdirat",
    "unlink rmdir unlinkat",
    "rename renameat renameat2",
    "link linkat",
    "symlink symlinkat",
    "getdents getdents64",
    "chdir fchdir getcwd",
    "truncate ftruncate fallocate",
    "fsync fdatasync sync_file_range msync",
    "read readv pread64 preadv preadv2",
    "write writev pwrite64 pwritev pwritev2",
    "sendfile copy_file_range",
    "dup dup2 dup3",
    "pipe pipe2",
    "poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2",
    "eventfd eventfd2",
    "timerfd_create timerfd_settime timerfd_gettime",
    "timer_create timer_settime timer_gettime timer_getoverrun timer_delete",
    "alarm getitimer setitimer",
    "fork vfork clone",
    "execve execveat",
    "wait4 waitid",
    "nanosleep clock_nanosleep",
    "time gettimeofday clock_gettime clock_getres times getrusage",
    "futex futex_waitv futex_wake futex_wait futex_requeue set_robust_list get_robust_list",
    "mmap munmap mremap mprotect madvise brk",
    "mlock mlock2 munlock",
    "pkey_alloc pkey_free pkey_mprotect",
    "getpid getppid gettid getpgid getpgrp getsid",
    "setpgid setsid",
    "getuid geteuid getresuid getgid getegid getresgid getgroups",
    "sched_yield getcpu",
    "sched_getscheduler sched_getparam sched_getattr sched_get_priority_max sched_get_priority_min",
    "rt_sigaction rt_sigprocmask rt_sigpending rt_sigsuspend rt_sigtimedwait sigaltstack pause",
    "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo",
    "sendto sendmsg sendmmsg recvfrom recvmsg recvmmsg",
    "accept accept4",
    "getsockname getpeername getsockopt setsockopt shutdown",
    "getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr",
)
"""Calls that do the same for a program. Where one is recorded, the C libraries of another distribution or
architecture make another one."""

_BESIDE: Final = frozenset({
    # Where the kernel resumes what a signal interrupted, in the last steps of a thread, or without a vDSO:
    # a tracer need not see them.
    "restart_syscall", "rt_sigreturn", "exit", "exit_group", "rseq", "clock_gettime",
    # `shutil.copy` of Python, which an unknown error ends.
    "listxattr", "getxattr", "sendfile",
    # The runner itself: the inner boundary of its processes, and how these are scheduled.
    "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "seccomp",
    "ioprio_get", "getpriority", "sched_getscheduler", "getrlimit",
    # Drivers of GPUs that the recording machine lacks: memory near a device (libhsakmt), pinned and shared
    # memory (CUDA, Level Zero), devices that appear (libudev, libusb), locks of program caches (Mesa, CUDA),
    # their events and pairs of sockets.
    "mbind", "get_mempolicy", "set_mempolicy", "memfd_create", "mlock", "mincore",
    "inotify_init1", "inotify_add_watch", "inotify_rm_watch", "flock", "link", "eventfd2", "timerfd_create",
    "bind", "listen", "accept",
})  # fmt: skip
"""Calls beside the recorded ones."""


def number(name: str, machine: str) -> int | None:
    """Return a call's number on a machine; None where it has no such call. Raises `KeyError`: not listed."""
    return _numbers()[name][MACHINES.index(machine)]


@cache
def recorded() -> dict[str, frozenset[str]]:
    """Return the calls of each delegate, and of the probe, that were recorded."""
    return {who: frozenset(names) for who, names in json.loads(RECORDED.read_text()).items()}


@cache
def allowed() -> frozenset[str]:
    """Return the calls that a runner may make, as far as no rule answers them by their arguments."""
    found = _BESIDE.union(*recorded().values())
    alike = (frozenset(family.split()) for family in _FAMILIES)
    return found.union(*(family for family in alike if family & found))


@cache
def _numbers() -> dict[str, list[int | None]]:
    found: dict[str, list[int | None]] = json.loads(_NUMBERS.read_text())
    return found
