"""SKEL0001: the shipped skeletons restore to the files of the index; damage is an error."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.errors import ModelFormatError
from runtime.model.arithmetic import macs_of
from runtime.model.reader import read_model
from runtime.model.skeleton import is_skeleton, restore_skeleton
from tests.needs import REPOSITORY, shared_models

ZOO = REPOSITORY / "examples/zoo"
INDEX = {entry["name"]: entry for entry in json.loads((ZOO / "index.json").read_text())["models"]}
SMALL = sorted(name for name, entry in INDEX.items() if entry["bytes"] <= 8_000_000)


@pytest.mark.parametrize("name", SMALL)
def test_a_shipped_skeleton_restores_to_its_hash(name):
    data = (ZOO / f"{name}.skel").read_bytes()
    assert is_skeleton(data)
    restored = restore_skeleton(data)
    assert hashlib.sha256(restored).hexdigest() == INDEX[name]["sha256"]
    assert sum(map(macs_of, read_model(restored).subgraphs)) == INDEX[name]["macs"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(INDEX.keys() - set(SMALL)))
def test_a_large_shipped_skeleton_restores_to_its_hash(name):
    test_a_shipped_skeleton_restores_to_its_hash(name)


def test_a_skeleton_with_packed_weights_restores_to_its_hash():
    """Four-bit weights are in none of the shipped ones."""
    zoo = shared_models() / "zoo"
    entries = json.loads((zoo / "index.json").read_text())["models"]
    name = "torchvision_mobilenet_v3_small__dynamic_int4"
    found = next(entry for entry in entries if entry["name"] == name)
    restored = restore_skeleton((zoo / f"{name}.skel").read_bytes())
    assert hashlib.sha256(restored).hexdigest() == found["restored_sha256"]


def packed(header: object, body: bytes = b"abcdef") -> bytes:
    text = json.dumps(header).encode()
    return gzip.compress(b"SKEL0001" + struct.pack("<I", len(text)) + text + body)


def skeleton(size=14, seed=1, holes=None, body=b"abcdef") -> bytes:
    holes = [[3, 2, "f4", "n", 0.0, 1.0, -2.0, 2.0]] if holes is None else holes
    return packed({"size": size, "seed": seed, "holes": holes}, body)


def test_kept_bytes_surround_the_generated_ones():
    holes = [[3, 4, "f4", "n", 0.0, 1.0, -2.0, 2.0]]
    restored = restore_skeleton(skeleton(22, holes=holes))
    assert restored[:3] + restored[19:] == b"abcdef"
    assert struct.unpack("<4f", restored[3:19])[1:3] == (-2.0, 2.0)
    assert restored == restore_skeleton(skeleton(22, holes=holes))
    assert restored != restore_skeleton(skeleton(22, seed=2, holes=holes))


HOLE = [3, 2, "f4", "n", 0.0, 1.0, -2.0, 2.0]
DAMAGED = {
    "not_gzip": b"SKEL0001",
    "other_magic": gzip.compress(b"SKEL9999" + bytes(20)),
    "empty": gzip.compress(b""),
    "header_too_long": gzip.compress(b"SKEL0001" + struct.pack("<I", 2**31) + b"{}"),
    "header_cut": gzip.compress(b"SKEL0001" + struct.pack("<I", 50) + b"{}"),
    "header_no_object": packed([1, 2]),
    "header_nested": gzip.compress(b"SKEL0001" + struct.pack("<I", 200_000) + b"[" * 200_000),
    "size_huge": skeleton(size=2**40),
    "size_negative": skeleton(size=-1),
    "size_text": skeleton(size="14"),
    "seed_negative": skeleton(seed=-1),
    "holes_overlap": skeleton(size=22, holes=[HOLE, [5, *HOLE[1:]]]),
    "holes_unsorted": skeleton(size=40, holes=[[20, *HOLE[1:]], HOLE]),
    "hole_outside": skeleton(holes=[[12, *HOLE[1:]]]),
    "hole_negative": skeleton(holes=[[-3, *HOLE[1:]]]),
    "hole_count": skeleton(holes=[[3, 2**50, *HOLE[2:]]]),
    "hole_empty": skeleton(holes=[[3, 0, *HOLE[2:]]]),
    "hole_type": skeleton(holes=[[3, 2, "f8", *HOLE[3:]]]),
    "hole_kind": skeleton(holes=[[3, 2, "f4", "x", *HOLE[4:]]]),
    "hole_short": skeleton(holes=[[3, 2, "f4"]]),
    "hole_infinite": skeleton(holes=[[3, 2, "f4", "n", 0.0, 1e300, -2.0, 2.0]]),
    "hole_range": skeleton(holes=[[3, 8, "i1", "n", 0.0, 1.0, -300.0, 2.0]]),
    "hole_order": skeleton(holes=[[3, 2, "f4", "n", 0.0, 1.0, 2.0, -2.0]]),
    "half_byte": skeleton(holes=[[3, 3, "p4", "n", 0.0, 1.0, -2.0, 2.0]]),
    "body_short": skeleton(body=b"abc"),
    "body_long": skeleton(body=b"abcdefg"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_skeleton_is_an_error(name):
    with pytest.raises(ModelFormatError, match="skeleton: "):
        restore_skeleton(DAMAGED[name])


@pytest.mark.slow
def test_a_bomb_is_not_inflated():
    bomb = gzip.compress(b"SKEL0001" + struct.pack("<I", 2) + b"{}" + bytes(200 << 20))
    assert len(bomb) < 1 << 20
    with pytest.raises(ModelFormatError, match="header"):
        restore_skeleton(bomb)
    longer = skeleton(body=bytes(200 << 20))
    with pytest.raises(ModelFormatError, match="longer than declared"):
        restore_skeleton(longer)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4))
def test_mutated_skeletons_are_restored_or_refused(changes):
    data = bytearray(skeleton())
    for position, value in changes:
        data[position % len(data)] = value
    with contextlib.suppress(ModelFormatError):
        restore_skeleton(bytes(data))


def test_only_skeletons_look_like_one():
    assert is_skeleton(skeleton())
    assert not is_skeleton(gzip.compress(b"something else"))
    assert not is_skeleton(b"TFL3")
    assert not is_skeleton(b"\x1f\x8bbroken")
