"""Lets a delegate compile the kernels of models before any is opened: of given ones, or of the zoo's."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runtime.delegates.abilities import Primable, Primed
from runtime.delegates.base import Partition, PartitionDelegate
from runtime.delegates.registry import load_delegate
from runtime.errors import DelegateError, ModelFormatError, UnsupportedOperatorError
from runtime.model.graph import Model
from runtime.model.reader import load_model, read_model
from runtime.model.skeleton import is_skeleton, restore_structure, zoo_folder
from runtime.plan.program import Program


def networks() -> tuple[Path, ...]:
    """Return the skeletons of the zoo, the smallest first. Raises `DelegateError` if there is none."""
    folder = zoo_folder()
    if folder is None:
        raise DelegateError("this installation has no zoo of networks; name model files instead")
    return tuple(sorted(folder.glob("*.skel"), key=lambda file: (file.stat().st_size, file.name)))


def prime_device(delegate: str, options: Mapping[str, Any], files: Sequence[Path]) -> Primed:
    """Compile and keep the kernels that `.tflite` and `.skel` files need of the delegate's device.

    Raises `OSError`, `ModelFormatError` for an unreadable file, `DelegateError` where no kernels are kept.
    """
    loaded = load_delegate(delegate, options)
    if not (isinstance(loaded, PartitionDelegate) and isinstance(loaded, Primable)):
        raise DelegateError(f"{delegate}: it keeps no compiled kernels")
    return loaded.prime(_name(files), partitions_of(loaded, files))


def _name(files: Sequence[Path]) -> str:
    """Hash the files' contents, in their order."""
    found = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            found.update(hashlib.file_digest(stream, "sha256").digest())
    return found.hexdigest()


def partitions_of(delegate: PartitionDelegate, files: Sequence[Path]) -> Iterator[Partition]:
    """Yield the partitions that the delegate takes of each model, one model in memory at a time."""
    for file in files:
        planned = Program(_structure(file), (delegate,)).subgraph(0)
        try:
            planned.analyse()
        except UnsupportedOperatorError:
            continue  # it cannot run at all
        for assignment in planned.assignments:
            if assignment.partition is not None:
                yield assignment.partition


def _structure(file: Path) -> Model:
    """Read the model of a file; a skeleton gets zeros for weights, on which no kernel depends."""
    with file.open("rb") as stream:
        head = stream.read(4096)
    if not is_skeleton(head):
        return load_model(file)
    try:
        return read_model(restore_structure(file.read_bytes()))
    except ModelFormatError as error:
        raise ModelFormatError(f"{file}: {error}") from error
