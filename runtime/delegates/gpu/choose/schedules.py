"""The ways to enqueue the layers of a recording: in persistent segments, or alone and small ones together."""

from itertools import pairwise
from typing import Final

from runtime.delegates.gpu.backends.base import Entry, Recording
from runtime.delegates.gpu.lowering.spec import Launch

SMALL_FLOPS: Final = 1 << 16
"""Operations of a layer up to which one group is as fast as several, which have to be woken: 3 to 6
microseconds of one core, where an enqueue takes 2.5 of the caller's and 4 until its end (PoCL on two cores).
Larger lets one core do what two would end sooner; smaller enqueues what ends before the second core wakes."""

SMALL_BYTES: Final = 1 << 15
"""Bytes that a small layer moves at most: as long as `SMALL_FLOPS`, for layers that only move or compare."""


def plain(recording: Recording, *, shares_one_kernel: bool) -> list[Entry]:
    """Return an enqueue for each layer, but one for consecutive small layers if kernels can share.

    A single group runs the latter: it waits for nobody, and its own stores are in order.
    """
    count = len(recording.launches)
    if not shares_one_kernel:
        return [recording.entry(layer) for layer in range(count)]
    ends = [
        layer
        for layer in range(1, count)
        if not (_is_small(recording.launches[layer - 1]) and _is_small(recording.launches[layer]))
        # A kernel gets one buffer of constants, so no enqueue spans layers of two.
        or recording.buffers[layer] != recording.buffers[layer - 1]
    ]
    return [
        recording.entry(start) if end - start == 1 else recording.sequence(start, end)
        for start, end in pairwise([0, *ends, count])
    ]


def persistent(recording: Recording) -> list[Entry]:
    """Return a persistent segment for each run of layers whose constants lie in one buffer."""
    buffers, count = recording.buffers, len(recording.launches)
    ends = [layer for layer in range(1, count) if buffers[layer] != buffers[layer - 1]]
    return [
        recording.entry(start) if end - start == 1 else recording.segment(start, end)
        for start, end in pairwise([0, *ends, count])
    ]


def _is_small(launch: Launch) -> bool:
    return launch.flops <= SMALL_FLOPS and launch.bytes <= SMALL_BYTES
