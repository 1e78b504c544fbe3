"""Counter-based random bits (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

Every block of bits is a function of a key and a counter, so a whole run of blocks is computed at once.
"""

import numpy as np

from runtime.ops.support import Array

_LOW = np.uint64(0xFFFFFFFF)
"""The low word of 64 bits."""

_HALF = np.uint64(32)
"""Bits of a word."""

_PHILOX_ROUNDS = 10
"""Rounds of Philox4x32-10, the variant of TensorFlow and StableHLO; another number gives other bits."""

_PHILOX_MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], np.uint64)
"""Multipliers of the two halves of the counter, from the paper."""

_PHILOX_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
"""What each round adds to the two key words: the fractions of the golden ratio and of sqrt(3) in 32 bits."""

_THREEFRY_ROUNDS = 20
"""Rounds of Threefry2x32-20, the variant of StableHLO; another number gives other bits."""

_THREEFRY_PARITY = 0x1BD11BDA
"""Constant of the third key word, from the Skein hash: no key makes all three words zero."""

_THREEFRY_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
"""Bits by which the second word rotates in each round, from the paper; they repeat after eight rounds."""


def philox(key: tuple[int, int], low: Array, high: tuple[int | Array, int | Array]) -> Array:
    """Return blocks of Philox4x32-10, uint32 [n, 4].

    The counters' low 64 bits are `low`, uint64 [n], and their two high words are `high`.
    """
    c0, c1 = low & _LOW, low >> _HALF
    c2, c3 = (np.broadcast_to(np.asarray(h, np.uint64), low.shape) for h in high)
    first, second = key
    for _ in range(_PHILOX_ROUNDS):
        # Words of 32 bits are kept in uint64, so that the product's high half is there to be taken.
        left, right = c0 * _PHILOX_MULTIPLIERS[0], c2 * _PHILOX_MULTIPLIERS[1]
        c0, c2 = ((right >> _HALF) ^ c1 ^ np.uint64(first), (left >> _HALF) ^ c3 ^ np.uint64(second))
        c1, c3 = right & _LOW, left & _LOW
        first = (first + _PHILOX_KEY_STEPS[0]) & 0xFFFFFFFF
        second = (second + _PHILOX_KEY_STEPS[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


def threefry(key: tuple[int, int], counters: Array) -> Array:
    """Return blocks of Threefry2x32-20, uint32 [n, 2], for the 64-bit `counters`, uint64 [n]."""
    keys = (*key, _THREEFRY_PARITY ^ key[0] ^ key[1])
    x0 = ((counters & _LOW) + np.uint64(keys[0])) & _LOW
    x1 = ((counters >> _HALF) + np.uint64(keys[1])) & _LOW
    for i in range(_THREEFRY_ROUNDS):
        turn = _THREEFRY_ROTATIONS[i % len(_THREEFRY_ROTATIONS)]
        x0 = (x0 + x1) & _LOW
        x1 = ((x1 << np.uint64(turn)) | (x1 >> np.uint64(32 - turn))) & _LOW
        x1 ^= x0
        # Every four rounds the key is added, and the number of the addition, so that no two are alike.
        if i % 4 == 3:
            step = i // 4 + 1
            x0 = (x0 + np.uint64(keys[step % 3])) & _LOW
            x1 = (x1 + np.uint64(keys[(step + 1) % 3] + step)) & _LOW
    return np.stack([x0, x1], axis=-1).astype(np.uint32)


class PhiloxStream:
    """Blocks of four words from a counter of 128 bits, in the order of TensorFlow's `PhiloxRandom`."""

    def __init__(self, seed: int, seed2: int) -> None:
        # As `PhiloxRandom(seed_lo, seed_hi)`: one seed is the key, the other the upper half of the counter.
        self._key = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
        self._counter = (seed2 & 0xFFFFFFFFFFFFFFFF) << 64

    def peek(self, words: int) -> Array:
        """Return the next `words` words, uint32, without using them up."""
        blocks = -(-words // 4)
        start, wide = self._counter & 0xFFFFFFFFFFFFFFFF, self._counter >> 64
        low = np.uint64(start) + np.arange(blocks, dtype=np.uint64)
        # Where the low half wrapped around, one is carried into the high half.
        upper = np.where(low < np.uint64(start), np.uint64((wide + 1) & 0xFFFFFFFFFFFFFFFF), np.uint64(wide))
        return philox(self._key, low, (upper & _LOW, upper >> _HALF)).reshape(-1)[:words]

    def skip(self, blocks: int) -> None:
        """Skip `blocks` blocks of four words."""
        self._counter = (self._counter + blocks) % (1 << 128)

    def draw(self, words: int) -> Array:
        """Return the next `words` words, uint32; the rest of the last block is lost, as in TensorFlow."""
        drawn = self.peek(words)
        self.skip(-(-words // 4))
        return drawn
