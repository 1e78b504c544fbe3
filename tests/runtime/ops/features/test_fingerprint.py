"""FarmHash's fingerprint, against the bits that LiteRT makes of it."""

from __future__ import annotations

import pytest

from runtime.model.schema import LSHProjectionType
from runtime.ops.features.fingerprint import fingerprint64
from tests.runtime.ops.cases import CPU, check
from tests.runtime.ops.features.test_lsh_projection import items, projected

CASES = [projected(LSHProjectionType.DENSE, items(4, length)) for length in (5, 12, 15, 31, 100)]
"""With 4 bytes of seed, items of 24 to 404 bytes: each way of the hash, at its ends and inside."""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_signs_of_hashes_of_every_length_match_litert(case):
    """LiteRT shows its hashes only as the bits that LSH_PROJECTION makes of them."""
    check(case, CPU)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8, 16, 17, 32, 33, 64, 65, 128, 129, 500])
def test_every_byte_of_the_data_counts(size):
    data = bytes(range(256)) * 2
    hashes = {fingerprint64(data[:size])}
    for i in range(size):
        changed = bytearray(data[:size])
        changed[i] ^= 1
        hashes.add(fingerprint64(bytes(changed)))
    assert len(hashes) == size + 1
    assert all(0 <= found < 1 << 64 for found in hashes)


def test_the_hash_of_nothing_is_farmhashs_constant():
    assert fingerprint64(b"") == 0x9AE16A3B2F90404F
