"""Run a filter of system calls as the kernel's BPF machine does, for architectures that this one is not."""

from __future__ import annotations

from collections.abc import Sequence

from agent.processes.sandbox.bpf import Step

ALLOWED = 0
WITHOUT_EFFECT = -1


def answer(steps: Sequence[Step], audit: int, call: int, *arguments: int) -> int:
    """Error number of a call; `ALLOWED` where it is let through, `WITHOUT_EFFECT` where it only says so."""
    words = {0: call, 4: audit}
    words |= {16 + 8 * index: value & 0xFFFFFFFF for index, value in enumerate(arguments)}
    place, accumulator = 0, 0
    while True:
        code, if_true, if_false, value = steps[place]
        place += 1
        match code:
            case 0x20:  # BPF_LD | BPF_W | BPF_ABS
                accumulator = words.get(value, 0)
            case 0x54:  # BPF_ALU | BPF_AND | BPF_K
                accumulator &= value
            case 0x06:  # BPF_RET | BPF_K
                return ALLOWED if value == 0x7FFF0000 else value & 0xFFFF or WITHOUT_EFFECT
            case 0x15 | 0x35 | 0x45:  # BPF_JMP with BPF_JEQ, BPF_JGE, BPF_JSET
                holds = {
                    0x15: accumulator == value,
                    0x35: accumulator >= value,
                    0x45: bool(accumulator & value),
                }
                place += if_true if holds[code] else if_false
            case _:
                raise AssertionError(f"no such instruction: {code:#x}")
