"""Divides the constants of launches among as many buffers as the device's largest allocation asks for.

A launch gets one buffer of constants, so all that it reads lie in one; what launches of several buffers read
lies in each of these. Where everything fits into one buffer, there is one, and no constant is in it twice.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.gpu.graph.graph import LINE, round_up
from runtime.delegates.gpu.graph.weights import WeightType
from runtime.delegates.gpu.lowering.spec import Launch, PackedConstant


@dataclass(slots=True)
class ConstantBuffer:
    """The offset of each constant in one buffer, and the buffer's size; in bytes, multiples of LINE."""

    offsets: dict[PackedConstant, int] = field(default_factory=dict)
    size: int = 0

    def lacking(self, constants: Iterable[PackedConstant]) -> int:
        """Bytes by which these would enlarge the buffer."""
        return sum(round_up(c.bytes, LINE) for c in constants if c not in self.offsets)

    def add(self, constants: Iterable[PackedConstant]) -> None:
        """Place what is not there yet behind the rest."""
        for constant in constants:
            if constant not in self.offsets:
                self.offsets[constant] = self.size
                self.size += round_up(constant.bytes, LINE)


@dataclass(frozen=True, slots=True)
class ConstantBuffers:
    """The buffers, of which there is at least one, and for each launch the number of its own."""

    offsets: tuple[Mapping[PackedConstant, int], ...]
    sizes: tuple[int, ...]
    chosen: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """The size of all of them."""
        return sum(self.sizes)

    @property
    def by_launch(self) -> list[Mapping[PackedConstant, int]]:
        """For each launch the offsets of what it reads."""
        return [self.offsets[number] for number in self.chosen]


def packed(offsets: Mapping[PackedConstant, int], size: int) -> Iterator[NDArray[np.uint8]]:
    """Yield the bytes of a buffer of constants in order, one constant at a time, with zeros in the gaps."""
    end = 0
    # In the order in which they were placed, in which offsets only grow.
    for constant, offset in offsets.items():
        yield np.zeros(offset - end, np.uint8)
        yield constant.values().view(np.uint8)
        end = offset + constant.bytes
    yield np.zeros(size - end, np.uint8)


def narrow_weights(launches: Iterable[Launch]) -> Mapping[WeightType, int]:
    """Bytes of the constants of each type in which weights of fewer than 32 bits lie on the device."""
    found = Counter[WeightType]()
    for constant in {one for launch in launches for one in launch.args if isinstance(one, PackedConstant)}:
        if constant.weights not in (None, WeightType.F32):
            found[constant.weights] += constant.bytes
    return found


def divide(launches: Sequence[Launch], most: int) -> ConstantBuffers:
    """Fill buffers of at most `most` bytes in the launches' order; one launch alone may need a larger one."""
    buffers, chosen = [ConstantBuffer()], []
    for launch in launches:
        arguments = (*launch.args, *launch.epilogue.operands)
        constants = dict.fromkeys(a for a in arguments if isinstance(a, PackedConstant))
        # An earlier one that has them all needs no copies; else only the last still grows.
        fitting = [number for number, buffer in enumerate(buffers) if not buffer.lacking(constants)]
        number = fitting[0] if fitting else len(buffers) - 1
        # An empty buffer takes what the launch reads, however much: there is no larger one to come.
        if not fitting and buffers[-1].size and buffers[-1].size + buffers[-1].lacking(constants) > most:
            buffers.append(ConstantBuffer())
            number += 1
        buffers[number].add(constants)
        chosen.append(number)
    return ConstantBuffers(
        tuple(buffer.offsets for buffer in buffers), tuple(buffer.size for buffer in buffers), tuple(chosen)
    )
