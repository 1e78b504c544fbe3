"""The inputs and outputs of a model file, without its operators and weights.

For delegates that read files by themselves: reading the whole file besides would be part of their start.
"""

import mmap
from dataclasses import dataclass
from pathlib import Path

from runtime.errors import ModelFormatError
from runtime.model.flatbuffer import FlatBuffer, Table
from runtime.model.graph import Signature, Tensor
from runtime.model.reader import enum_of, quantization_of, signature_of
from runtime.model.schema import FILE_IDENTIFIER, TensorType


@dataclass(frozen=True, slots=True)
class Interface:
    """Inputs and outputs of the main subgraph in its order, and the number of its operators.

    `signature`: the first one of the main subgraph, None where there is none.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    operators: int
    signature: Signature | None


def load_interface(path: str | Path) -> Interface:
    """Read it from a file. Raises OSError, and `ModelFormatError` with the file and the place in it."""
    with Path(path).open("rb") as file:
        # `mmap` refuses an empty file with a ValueError that names neither the file nor the reason.
        if file.seek(0, 2) == 0:
            raise ModelFormatError(f"{path}: the file is empty")
        buffer = FlatBuffer(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
    if (found := buffer.identifier()) != FILE_IDENTIFIER:
        raise ModelFormatError(
            f"{path}: file: identifier is {found!r}, a .tflite file has {FILE_IDENTIFIER!r}"
        )
    try:
        return _interface(buffer.root())
    except ModelFormatError as error:
        raise ModelFormatError(f"{path}: {error}") from None


def _interface(root: Table) -> Interface:
    main = next(iter(root.tables(2, "subgraphs")), None)
    if main is None:
        raise ModelFormatError("model: it has no subgraph")
    tensors = tuple(main.tables(0, "tensors"))
    signatures = (signature_of(table) for table in root.tables(7, "signature_defs"))
    return Interface(
        inputs=_chosen(tensors, main.numbers(1, "inputs", "i") or (), "inputs"),
        outputs=_chosen(tensors, main.numbers(2, "outputs", "i") or (), "outputs"),
        operators=sum(1 for _ in main.tables(3, "operators")),
        signature=next((found for found in signatures if found.subgraph_index == 0), None),
    )


def _chosen(tensors: tuple[Table, ...], indices: tuple[int, ...], what: str) -> tuple[Tensor, ...]:
    for index in indices:
        if not 0 <= index < len(tensors):
            raise ModelFormatError(f"model.subgraphs[0].{what}: tensor {index} of {len(tensors)}")
    return tuple(_tensor(index, tensors[index]) for index in indices)


def _tensor(index: int, table: Table) -> Tensor:
    quantization = table.table(4, "quantization")
    return Tensor(
        index=index,
        name=table.string(3, "name") or "",
        type=enum_of(TensorType, table.scalar(1, "type", "b"), table, "type"),
        shape=table.numbers(0, "shape", "i") or (),
        shape_signature=table.numbers(7, "shape_signature", "i"),
        quantization=quantization_of(quantization) if quantization else None,
    )
