"""Tells models apart by their bytes: a hash of all of them, or a quick look at some."""

import hashlib
from collections.abc import Iterable
from typing import Final

from runtime.model.graph import Model

_SAMPLES: Final = 64
"""Places at which `sample` looks. Weights that were trained anew differ nearly everywhere; each place costs a
page that may have to be read from disk."""

_SAMPLE_BYTES: Final = 64
"""Bytes at each of these places: sixteen float32 weights. More would tell hardly more, at the same price."""


def fingerprint(model: Model) -> str | None:
    """Return the sha256 of a model's bytes and of its weights in other files; None if it has no bytes."""
    if model.source is None:
        return None
    digest = hashlib.sha256()
    for chunk in model.source.chunks():
        digest.update(chunk)
    for data in _external(model):
        digest.update(data)
    return digest.hexdigest()


def sample(model: Model) -> str | None:
    """Hash the size of a model's bytes and a few of them; None if it has none.

    It takes less than a millisecond, and tells models apart whose weights differ nearly everywhere.
    """
    if model.source is None:
        return None
    digest = hashlib.sha256()
    for data in (model.source.content, *_external(model)):
        digest.update(str(len(data)).encode())
        for place in range(_SAMPLES):
            start = len(data) * place // _SAMPLES
            digest.update(data[start : start + _SAMPLE_BYTES])
    return digest.hexdigest()


def _external(model: Model) -> Iterable[memoryview]:
    tensors = (tensor for subgraph in model.subgraphs for tensor in subgraph.tensors)
    return (tensor.data for tensor in tensors if tensor.external_buffer and tensor.data is not None)
