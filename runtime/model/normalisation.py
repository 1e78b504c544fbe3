"""The normalisation of a picture that a model's metadata states (TFLite's `metadata_schema.fbs`)."""

from __future__ import annotations

from typing import Final

from runtime.errors import ModelFormatError
from runtime.model.flatbuffer import FlatBuffer
from runtime.model.graph import Model

_METADATA: Final = "TFLITE_METADATA"
_NORMALISATION: Final = 1
"""`NormalizationOptions` in the union of a process unit's options."""


def picture_normalisation(model: Model) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return mean and deviation of the first input's pixels, None where the metadata has none.

    Raises `ModelFormatError` for metadata that cannot be read.
    """
    content = model.metadata.get(_METADATA)
    if content is None:
        return None
    for graph in FlatBuffer(content).root().tables(3, "subgraph_metadata"):
        for tensor in graph.tables(2, "input_tensor_metadata"):
            for unit in tensor.tables(4, "process_units"):
                if unit.scalar(0, "options_type", "B") != _NORMALISATION:
                    continue
                options = unit.table(1, "options")
                mean = None if options is None else options.numbers(0, "mean", "f")
                std = None if options is None else options.numbers(1, "std", "f")
                if not mean or not std or any(value <= 0 for value in std):
                    raise ModelFormatError(f"{_METADATA}: a normalisation without mean or std")
                return mean, std
            break
    return None
