"""Makes a signature of a model the graph that every runtime runs by default: its first subgraph.

The farm then treats it as any other model. Inputs and outputs get the signature's names. The verbs on models
read such a file, a model as it is, or a skeleton.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from runtime.errors import ModelFormatError
from runtime.model.graph import Model, Operator, Signature, Subgraph
from runtime.model.reader import load_model, read_model
from runtime.model.skeleton import is_skeleton, restore_skeleton
from runtime.model.writer import write_model

_REFERENCES: Final = ("subgraph", "subgraph_index", "subgraph_indices")
"""Ends of the names of options that hold numbers of subgraphs."""


def signature_file(data: bytes, key: str) -> bytes:
    """Return the file whose first subgraph is that of the signature `key`.

    Raises `ModelFormatError` for an unknown key, and for a file that the reader refuses.
    """
    model = read_model(data)
    return write_model(with_signature_first(model, key))


def with_signature_first(model: Model, key: str) -> Model:
    """Return the model with the signature's subgraph in front, and the signature as its first one.

    Raises `ModelFormatError` for an unknown key.
    """
    chosen = next((one for one in model.signatures if one.key == key), None)
    if chosen is None:
        known = ", ".join(one.key for one in model.signatures)
        raise ModelFormatError(f"no signature {key!r}; the model has {known or 'none'}")
    first = chosen.subgraph_index
    order = [first, *(one.index for one in model.subgraphs if one.index != first)]
    places = {old: new for new, old in enumerate(order)}
    subgraphs = [_renumbered(model.subgraphs[old], places) for old in order]
    subgraphs[0] = _named(subgraphs[0], chosen)
    signatures = (chosen, *(one for one in model.signatures if one is not chosen))
    return replace(
        model,
        subgraphs=tuple(subgraphs),
        signatures=tuple(replace(one, subgraph_index=places[one.subgraph_index]) for one in signatures),
    )


def _renumbered(subgraph: Subgraph, places: Mapping[int, int]) -> Subgraph:
    operators = tuple(_referring(operator, places) for operator in subgraph.operators)
    return replace(subgraph, index=places[subgraph.index], operators=operators)


def _referring(operator: Operator, places: Mapping[int, int]) -> Operator:
    options = {name: _moved(name, value, places) for name, value in operator.options.items()}
    return operator if options == operator.options else replace(operator, options=options)


def _moved(name: str, value: Any, places: Mapping[int, int]) -> Any:
    if not name.endswith(_REFERENCES):
        return value
    if isinstance(value, Iterable):
        return tuple(places.get(one, one) for one in value)
    return places.get(value, value)


def _named(subgraph: Subgraph, signature: Signature) -> Subgraph:
    """Give inputs and outputs the signature's names; of a tensor with several the first counts."""
    names: dict[int, str] = {}
    for name, index in (*signature.inputs, *signature.outputs):
        names.setdefault(index, name)
    tensors = tuple(replace(one, name=names.get(one.index, one.name)) for one in subgraph.tensors)
    return replace(subgraph, tensors=tensors)


@contextmanager
def readable_model(file: Path, signature: str | None = None) -> Iterator[tuple[Path, Model]]:
    """Give path and graph of a `.tflite` file, or of a `.skel` file restored to a temporary one.

    With a `signature`, its graph is the first of a temporary file, in place of the file's own first one.
    Raises `OSError` and `ModelFormatError`.
    """
    with file.open("rb") as stream:
        # As much as `is_skeleton` looks at: a large model is not read to learn its kind.
        head = stream.read(4096)
    if not is_skeleton(head) and not signature:
        yield file, load_model(file)
        return
    content: bytes | bytearray = file.read_bytes()
    content = restore_skeleton(bytes(content)) if is_skeleton(head) else content
    with tempfile.NamedTemporaryFile(suffix=".tflite") as made:
        made.write(signature_file(bytes(content), signature) if signature else content)
        # The file is opened again by its name, where what is still in Python's buffer would be missing.
        made.flush()
        yield Path(made.name), load_model(made.name)
