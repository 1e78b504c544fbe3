"""Counter-based random bits against the vectors that the authors of Random123 published (`kat_vectors`)."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.ops.random.counter_random import PhiloxStream, philox, threefry

ONES = 0xFFFFFFFF


def one_block(key: tuple[int, int], counter: tuple[int, int, int, int]) -> list[int]:
    low = np.array([counter[0] | counter[1] << 32], np.uint64)
    return philox(key, low, (counter[2], counter[3]))[0].tolist()


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ((ONES,) * 4, (ONES, ONES), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_published_words(counter, key, words):
    assert one_block(key, counter) == words


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0), (0, 0), [0x6B200159, 0x99BA4EFE]),
        ((ONES, ONES), (ONES, ONES), [0x1CB996FC, 0xBB002BE7]),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), [0xC4923A9C, 0x483DF7A0]),
    ],
)
def test_threefry_gives_the_published_words(counter, key, words):
    counters = np.array([counter[0] | counter[1] << 32], np.uint64)
    assert threefry(key, counters)[0].tolist() == words


def test_a_stream_goes_on_block_by_block_over_the_end_of_its_low_words():
    stream = PhiloxStream(7, 11)
    stream.skip((1 << 64) - 2)
    across = stream.draw(16).reshape(4, 4).tolist()
    ends = (ONES - 1, ONES, 11, 0), (ONES, ONES, 11, 0), (0, 0, 12, 0), (1, 0, 12, 0)
    assert across == [one_block((7, 0), counter) for counter in ends]


def test_words_that_were_looked_at_stay_next_and_the_rest_of_a_block_is_lost():
    stream, other = PhiloxStream(3, 4), PhiloxStream(3, 4)
    assert stream.peek(6).tolist() == stream.peek(8)[:6].tolist() == stream.draw(6).tolist()
    other.skip(2)
    assert stream.draw(4).tolist() == other.draw(4).tolist()
