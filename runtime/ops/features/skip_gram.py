"""SKIP_GRAM: word groups of a sentence."""

import re
from collections.abc import Iterator

import numpy as np

from runtime.ops.movement.where import late_shape
from runtime.ops.support import Kernel, Op, OpContext, TensorType, operator

MAX_GROUPS = 1 << 20
"""Largest number of word groups. Chosen: they grow as words times a power of `max_skip_size`, so that a short
sentence and large options could otherwise fill the memory."""

_SPACE = re.compile(rb"[ \t\n\v\f\r]")


@operator(Op.SKIP_GRAM, infer=late_shape, types=(TensorType.STRING,))
def skip_gram(op: OpContext) -> Kernel:
    """SKIP_GRAM: groups of `ngram_size` words, or of up to as many; strings [groups].

    Between two words of a group at most `max_skip_size` are left out. Raises `ShapeError`.
    """
    x = op.read(0)
    size, skip, shorter = (op.option(n) for n in ("ngram_size", "max_skip_size", "include_all_ngrams"))

    def run() -> None:
        words = _words(x.reshape(-1)[0] if x.size else b"")
        groups: list[bytes] = []
        if len(words) >= size > 0:
            for group in _groups(len(words), size, max(skip, 0), 1 if shorter else size):
                groups.append(b" ".join(words[i] for i in group))
                if len(groups) > MAX_GROUPS:
                    raise op.error(f"more than {MAX_GROUPS} word groups")
        found = np.empty(len(groups), np.object_)
        found[:] = groups
        op.deliver(0, found)

    return run


def _words(sentence: bytes) -> list[bytes]:
    """Split at white space; one at the very front belongs to the first word, as in `skip_gram.cc`."""
    words, start = [], 0
    for found in _SPACE.finditer(sentence, 1):
        if found.start() > start and not _SPACE.match(sentence, start):
            words.append(sentence[start : found.start()])
        start = found.end()
    if len(sentence) > start:
        words.append(sentence[start:])
    return words


def _groups(words: int, size: int, skip: int, least: int) -> Iterator[tuple[int, ...]]:
    """Yield the positions of the words of every group of `least` to `size` words, longer groups before their
    shorter beginnings.
    """
    group: list[int] = []

    def following() -> Iterator[int]:
        if len(group) == size:
            return iter(())
        start = group[-1] + 1 if group else 0
        end = start + skip + 1 if group else words
        # Only words behind which enough are left: every beginning that is looked at leads to a group.
        return iter(range(start, min(end, words - max(least - len(group) - 1, 0))))

    # By hand and not by recursion, because a group may be longer than Python's stack is deep.
    left = [following()]
    while left:
        position = next(left[-1], None)
        if position is not None:
            group.append(position)
            left.append(following())
            continue
        left.pop()
        if group:
            if len(group) >= least:
                yield tuple(group)
            group.pop()
