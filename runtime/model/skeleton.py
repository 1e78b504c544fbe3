"""SKEL0001: a `.tflite` file without its large weights, restored with seeded random ones of like statistics.

The container is gzip( b"SKEL0001" | u32 header length | header JSON | the rest of the file ), the header
{"size", "seed", "holes": [[offset, count, dtype, kind, mean, std, min, max], ...]}. Element i of hole h is
x = mix64((seed * 2^32 + h) * 0xD1342543DE82EF95 + (i + 1) * 0x9E3779B97F4A7C15), mix64 the finaliser of
splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators). The sum of its four 16-bit
digits (kind "n") or four times the first (kind "u"), less 131070, is scaled to mean and standard deviation
in single precision and clipped; integers round half to even. Two elements are set to the extremes.
"""

import json
import mmap
import struct
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.errors import ModelFormatError

MAGIC = b"SKEL0001"
MAX_SIZE_BYTES = 2 << 30
"""Largest file that is restored. Chosen as the largest FlatBuffer, as a small header can declare any size."""

MAX_HEADER_BYTES = 64 << 20
"""Largest header. Chosen: at about 100 bytes for each hole, more holes than any model has tensors."""

_KINDS = ("n", "u")
_ITEM_BYTES = {"f4": 4, "f2": 2, "i1": 1, "u1": 1, "i2": 2, "i4": 4}


@dataclass(frozen=True, slots=True)
class _Hole:
    """Bytes that are generated: `count` elements of `code` at `offset`."""

    offset: int
    count: int
    code: str
    kind: str
    moments: tuple[float, float, float, float]

    @property
    def size(self) -> int:
        """The size in bytes; "p4" packs two elements in one."""
        return self.count // 2 if self.code == "p4" else self.count * _ITEM_BYTES[self.code]


LIMITS = {"f4": 3.4e38, "f2": 65504, "i1": 128, "u1": 255, "i2": 32768, "i4": 2.0**31 - 128, "p4": 8}
"""Largest size of a hole's extremes, by type: beyond it the type cannot hold them. For "i4" it is the largest
float32 below 2^31, as values are clipped in single precision."""

MOMENT = 1e30
"""Largest mean and standard deviation, so that scaling stays finite in single precision."""


def is_skeleton(data: bytes | memoryview) -> bool:
    """Return whether `data` starts like a gzip file whose content starts with the magic word."""
    if bytes(data[:2]) != b"\x1f\x8b":
        return False
    try:
        return _inflate(bytes(data[:4096]), len(MAGIC), partial=True)[: len(MAGIC)] == MAGIC
    except ModelFormatError:
        return False


def restore_skeleton(data: bytes) -> bytearray:
    """Return the bytes of a `.skel` file's `.tflite` file. Raises `ModelFormatError` for a damaged one."""
    from runtime.model.skeleton_weights import generate  # noqa: PLC0415 - only restoring needs numpy

    contents = _contents(data)
    out = bytearray(contents.size)
    view = memoryview(out)
    contents.keep(view)
    for k, hole in enumerate(contents.holes):
        target = view[hole.offset :][: hole.size]
        generate((contents.seed, k), hole.count, hole.code, hole.kind, hole.moments, target)
    return out


def restore_structure(data: bytes) -> memoryview:
    """Return the same bytes with zeros for the weights: all of a model but what it computes.

    Only what is not a weight takes memory. Raises `ModelFormatError` for a damaged file.
    """
    contents = _contents(data)
    # Private, so that reading a page that nobody wrote takes no memory either; it cannot be empty.
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    view = memoryview(mmap.mmap(-1, max(contents.size, 1), private))[: contents.size]
    contents.keep(view)
    return view.toreadonly()


@dataclass(frozen=True, slots=True)
class _Contents:
    """The contents of a skeleton: the size of the file, its holes, and the bytes between them."""

    size: int
    seed: int
    holes: list[_Hole]
    body: memoryview

    def keep(self, target: memoryview) -> None:
        """Write the bytes between the holes."""
        taken = end = 0
        for hole in self.holes:
            gap = hole.offset - end
            target[end : hole.offset] = self.body[taken : taken + gap]
            taken, end = taken + gap, hole.offset + hole.size
        target[end:] = self.body[taken:]


def _contents(data: bytes) -> _Contents:
    head = _inflate(data, 12, partial=True)
    if head[: len(MAGIC)] != MAGIC:
        raise ModelFormatError("skeleton: the content does not start with SKEL0001")
    length = struct.unpack_from("<I", head, 8)[0] if len(head) >= 12 else 0
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise ModelFormatError(f"skeleton: a header of {length} bytes is not plausible")
    # Inflated anew at each step, by what the one before has declared: nothing unpacks further than it must.
    size, seed, holes = _header(_inflate(data, 12 + length, partial=True)[12:])
    kept = size - sum(h.size for h in holes)
    body = memoryview(_inflate(data, 12 + length + kept, partial=False))[12 + length :]
    if len(body) != kept:
        raise ModelFormatError(f"skeleton: {len(body)} bytes beside the holes, {kept} are declared")
    return _Contents(size, seed, holes, body)


def _inflate(data: bytes, limit: int, *, partial: bool) -> bytes:
    """Return at most `limit` bytes of a gzip stream; the whole stream must end there unless `partial`.

    The limit is what keeps a small file from unpacking to any size.
    """
    stream = zlib.decompressobj(wbits=31)
    try:
        out = stream.decompress(data, limit)
        # A byte more than the limit tells that the stream goes on.
        rest = b"" if partial else stream.decompress(stream.unconsumed_tail, 1)
    except zlib.error as error:
        raise ModelFormatError(f"skeleton: not a gzip file, or a damaged one ({error})") from None
    if rest or (not partial and not stream.eof):
        raise ModelFormatError("skeleton: the gzip stream is longer than declared, or cut off")
    return out


def _header(text: bytes) -> tuple[int, int, list[_Hole]]:
    try:
        header = json.loads(text)
        size, seed, rows = header["size"], header["seed"], header["holes"]
        holes = [_hole(k, row) for k, row in enumerate(rows)]
    # RecursionError: deeply nested lists in the JSON of a hostile file.
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFormatError(f"skeleton: the header cannot be read ({error})") from None
    if not _is_count(size, MAX_SIZE_BYTES) or not _is_count(seed, 2**31):
        raise ModelFormatError(f"skeleton: size {size!r} or seed {seed!r} is out of range")
    end = 0
    for k, hole in enumerate(holes):
        if hole.offset < end or hole.offset + hole.size > size:
            raise ModelFormatError(
                f"skeleton: hole {k} at {hole.offset} overlaps or leaves the file of {size}"
            )
        end = hole.offset + hole.size
    return size, seed, holes


def _is_count(value: Any, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= limit


def _hole(k: int, row: Any) -> _Hole:
    offset, count, code, kind, *moments = row
    mean, std, low, high = (float(m) for m in moments)
    known = isinstance(code, str) and code in LIMITS
    limit = LIMITS[code] if known else 0.0
    fits = abs(mean) < MOMENT and 0 <= std < MOMENT and -limit <= low <= high <= limit
    if not (fits and kind in _KINDS):
        raise ValueError(f"hole {k} is {row!r}")
    if not (_is_count(offset, MAX_SIZE_BYTES) and _is_count(count, 2 * MAX_SIZE_BYTES)) or count < 1:
        raise ValueError(f"hole {k} is {row!r}")
    if code == "p4" and count % 2:
        raise ValueError(f"hole {k} has half a byte")
    return _Hole(offset, count, code, kind, (mean, std, low, high))


def zoo_folder() -> Path | None:
    """Return the folder with `index.json` and the skeletons; None if this installation has none."""
    checkout = Path(__file__).resolve().parents[2] / "examples" / "zoo"
    installed = Path(sys.prefix) / "share" / "delegate-farm" / "zoo"
    return next((folder for folder in (checkout, installed) if (folder / "index.json").is_file()), None)


def fitting_skeletons(pattern: str) -> list[str]:
    """Return the names of the zoo's models that fit a glob, sorted; none without a zoo."""
    folder = zoo_folder()
    return [] if folder is None else sorted(path.stem for path in folder.glob(f"{pattern}.skel"))
