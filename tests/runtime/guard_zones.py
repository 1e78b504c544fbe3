"""Guard zones: bytes of NaNs around every value, constant and scratch of the GPU delegate, on CPU devices.

A kernel that writes outside its buffers changes a zone, which each run looks at; one that reads there and
uses what it reads computes with NaNs (with -1 where it reads integers), and its results show it. Buffers
share no memory here, so that a zone stays one for the whole run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from runtime.common.arena import Arena
from runtime.delegates.gpu.backends import base
from runtime.delegates.gpu.backends.opencl import recording
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph.graph import LINE, Graph, round_up
from runtime.delegates.gpu.layout import memory
from runtime.delegates.gpu.layout.memory import BufferKey, Placement, Stage, lifetimes
from runtime.delegates.gpu.layout.packed_file import PackedFiles

SWITCH = "GUARD_ZONES"
"""The variable of the environment that puts zones around the buffers of all operator tests."""

ZONE = 4096
"""Bytes between two buffers. Larger finds kernels that miss their buffer by more, a row of a large image."""

NAN = 0xFF
"""The byte of which four make a NaN, and any number of them -1."""


def wanted() -> bool:
    """Whether the operator tests shall run with zones."""
    return os.environ.get(SWITCH) == "1"


@contextmanager
def guard_zones() -> Iterator[list[int]]:
    """Give every recording in the block zones; the list gets the number of zones of each run."""
    runs: list[int] = []
    real_place, real_empty = base.place_on, recording.aligned_empty
    placed: list[list[tuple[slice, str]]] = []
    real_init, real_run = recording.OpenClRecording.__init__, recording.OpenClRecording.run

    def empty(size: int) -> Any:
        block = real_empty(size)
        block[:] = NAN
        return block

    def place_on(device: Capabilities, graph: Graph, stages: Sequence[Stage]) -> Placement:
        placement = _spread_constants(real_place(device, graph, stages))
        placed.append(_zones(placement, graph, stages))
        return placement

    def init(self: Any, *rest: Any) -> None:
        real_init(self, *rest)
        self.zones = placed.pop()
        for zone, _ in self.zones:
            self._arena_memory[zone] = NAN

    def run(self: Any, entries: Any) -> None:
        real_run(self, entries)
        for zone, name in self.zones:
            wrong = np.flatnonzero(self._arena_memory[zone] != NAN)
            assert not wrong.size, f"a kernel wrote {wrong.size} bytes, the first {wrong[0]} behind {name}"
        runs.append(len(self.zones))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "plan_arena", _spread)
        patch.setattr(base, "place_on", place_on)
        patch.setattr(recording, "aligned_empty", empty)
        # Zones are in memory alone: a file has none, and would not fit the offsets between them.
        patch.setattr(PackedFiles, "constants", lambda *_: None)
        patch.setattr(recording.OpenClRecording, "__init__", init)
        patch.setattr(recording.OpenClRecording, "run", run)
        yield runs


def _spread(graph: Graph, stages: Sequence[Stage]) -> Arena[BufferKey]:
    """Every buffer behind a zone, in no other's memory."""
    offsets: dict[BufferKey, int] = {}
    end = ZONE
    for key, life in lifetimes(graph, stages).items():
        offsets[key] = end
        end += round_up(max(life.size, 1), LINE) + ZONE
    return Arena(offsets, end)


def _spread_constants(placement: Placement) -> Placement:
    offsets, sizes = [], []
    for known in placement.constants.offsets:
        found, end = {}, ZONE
        for constant in known:
            found[constant] = end
            end += round_up(constant.bytes, LINE) + ZONE
        offsets.append(found)
        sizes.append(end)
    buffers = replace(placement.constants, offsets=tuple(offsets), sizes=tuple(sizes))
    return replace(placement, constants=buffers)


def _zones(placement: Placement, graph: Graph, stages: Sequence[Stage]) -> list[tuple[slice, str]]:
    """Return the zones of an arena, each with the buffer before it."""
    lives = lifetimes(graph, stages)
    zones, start, before = [], 0, "the start of the arena"
    for key, offset in sorted(placement.arena.offsets.items(), key=lambda item: item[1]):
        zones.append((slice(start, offset), before))
        start = offset + lives[key].size
        before = f"value {key} {graph.values[key].name!r}" if isinstance(key, int) else f"scratch {key}"
    return [*zones, (slice(start, placement.arena.size), before)]
