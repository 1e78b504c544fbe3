"""Measures each kernel's time: one row per kernel, from events, with the model's operators that it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from runtime.delegates.base import Array
from runtime.delegates.gpu.compiled import CompiledGraph


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One kernel: its median time on the device in ns, its work, and the indices of the model's operators."""

    label: str
    function: str
    operators: tuple[int, ...]
    time_ns: float
    flops: int
    bytes: int


def profile(compiled: CompiledGraph, inputs: Sequence[Array], rounds: int = 10) -> list[ProfileRow]:
    """Run each kernel by itself, in order, `rounds` times after one warm-up round.

    A pass of its own: it waits for every kernel, so the sum of its rows is not a run's latency.
    """
    recording = compiled.recording
    entries = [recording.entry(layer) for layer in range(len(recording.launches))]
    samples: list[list[int]] = [[] for _ in entries]
    with compiled.backend.errors("profiling the partition"):
        timed = recording.timer()
        for attempt in range(rounds + 1):
            for value, array in zip(compiled.graph.inputs, inputs, strict=True):
                recording.write(value, array)
            recording.finish()
            for layer, entry in enumerate(entries):
                elapsed = timed(entry)
                if attempt:
                    samples[layer].append(elapsed)
    return [
        ProfileRow(
            launch.label,
            recording.names[layer],
            launch.sources,
            median(samples[layer]),
            launch.flops,
            launch.bytes,
        )
        for layer, launch in enumerate(recording.launches)
    ]
