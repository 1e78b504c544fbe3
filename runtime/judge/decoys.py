"""Wrong outputs near the right one, from which an output must differ before it may pass.

A tolerance says how far from the reference an output may be. Where an output hardly depends on the inputs, is
flat, or has a coarse rule, a wrong one lies within that tolerance, too. So an output passes only where it is
nearer to its reference than to each of these.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

SCALE: Final = 1.1
"""The factor of the output that is scaled. Chosen: nearer to 1, and the error that rules for narrow types
allow would count as a wrong scale."""


def nearest_decoy(y: Reals, r: Reals, others: Sequence[Reals]) -> str | None:
    """Return in words what the output `y` is as near to as to its reference `r`; None where it is nothing.

    `others` are the references of other input sets, of `r`'s shape. All values are finite.
    """
    error = float(np.linalg.norm(y - r))
    if error == 0.0:
        return None
    for name, decoy in _decoys(r, others):
        if np.linalg.norm(y - decoy) <= error and not np.array_equal(decoy, r):
            return name
    return None


def _decoys(r: Reals, others: Sequence[Reals]) -> Iterator[tuple[str, Reals]]:
    yield from (("another input set's output", other) for other in others)
    yield "zeros", np.zeros_like(r)
    yield f"{SCALE:g} times the reference", SCALE * r
    if r.size > 1:
        yield "a constant", np.full_like(r, r.mean())
        # By one pixel along a row of an image [..., width, channels], by one value of anything else.
        axis = -2 if r.ndim > 2 and r.shape[-2] > 1 else -1
        for step in (1, -1):
            yield "the reference shifted by one place", np.roll(r, step, axis)
