"""The signatures of a model in the order of its subgraphs, with a placeholder for a model without one."""

from collections.abc import Sequence

from runtime.errors import NOT_FOUND, StatusError
from runtime.model.graph import Model, Signature

PLACEHOLDER_KEY = "<placeholder signature>"
"""The key that LiteRT gives the signature of a model without one."""


def ordered_signatures(model: Model) -> tuple[Signature, ...]:
    """Return the model's signatures in the order of their subgraphs' tensors, or one made of tensor names."""
    if not model.signatures:
        primary = model.subgraphs[0]
        return (
            Signature(
                PLACEHOLDER_KEY,
                0,
                tuple((primary.tensors[i].name, i) for i in primary.inputs),
                tuple((primary.tensors[i].name, i) for i in primary.outputs),
            ),
        )
    found = []
    for signature in model.signatures:
        subgraph = model.subgraphs[signature.subgraph_index]
        inputs = sorted(signature.inputs, key=lambda pair: _place(subgraph.inputs, pair[1]))
        outputs = sorted(signature.outputs, key=lambda pair: _place(subgraph.outputs, pair[1]))
        found.append(Signature(signature.key, signature.subgraph_index, tuple(inputs), tuple(outputs)))
    return tuple(found)


def _place(order: Sequence[int], index: int) -> int:
    return order.index(index) if index in order else len(order)


def names(pairs: Sequence[tuple[str, int]]) -> list[str]:
    """Return the names of (name, tensor index) pairs, in order."""
    return [name for name, _ in pairs]


def tensor_named(kind: str, pairs: Sequence[tuple[str, int]], name: str) -> int:
    """Return the tensor of an input or output. Raises `StatusError` for an unknown name; `kind` begins its
    text.
    """
    for found, index in pairs:
        if found == name:
            return index
    raise StatusError(f"{kind} tensor not found: {name}", NOT_FOUND)
