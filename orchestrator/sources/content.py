"""Checks that a source is a model, or labelled data. Anything else is refused before it is in the store.

A campaign file may come from a stranger and is submitted with its submitter's rights, often an
administrator's. It can name any file that they can read, so what is no model is neither stored, nor sent to
an agent, nor quoted in a message.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from orchestrator.errors import FarmError, UsageError
from orchestrator.manifest.campaign import Campaign, ModelEntry
from orchestrator.results.records import ModelOrigin
from orchestrator.sources.zoo import zoo_models
from runtime.model.schema import FILE_IDENTIFIER

_USER: Final = re.compile(r"(?<=://)[^/\s'\"?#@]*@")
_QUERY: Final = re.compile(r"(://[^\s'\"?#]*\?)[^\s'\"#,}\]]+")


def without_credentials(text: str) -> str:
    """Return the text without the users, passwords and queries of its addresses; a query may hold a
    signature.
    """
    return _QUERY.sub(r"\1removed", _USER.sub("", text))


def origins_of(campaign: Campaign, files: Mapping[str, str]) -> dict[str, ModelOrigin]:
    """Return the origin of each model by its id. `files`: the sha256 of each model's file, as far as it is
    known.
    """
    licences = _licences()
    return {
        entry.id: ModelOrigin(_source(entry), licences.get(files.get(entry.id, "")))
        for entry in campaign.models
    }


def _source(entry: ModelEntry) -> str:
    """Return the source as the user wrote it, a file of the command line as a campaign file would name it."""
    source = f"./{Path(entry.source).name}" if entry.place is None else without_credentials(entry.source)
    return source if entry.signature is None else f"{source} (signature {entry.signature})"


def _licences() -> Mapping[str, str]:
    """Return the licence of every file that the zoo knows, by sha256."""
    try:
        return {model.sha256: model.licence for model in zoo_models().values()}
    except FarmError:
        return {}


Requirement = Callable[[BinaryIO, str], None]
"""Raises `UsageError`, naming the file by its second argument, for content of another kind."""

LABELS_MEMBER: Final = "labels.npy"

_IDENTIFIER_END: Final = 8
"""Bytes up to the end of a FlatBuffer's file identifier, which follows the offset of its root table."""

_ZIP_STARTS: Final = (b"PK\x03\x04", b"PK\x05\x06")


def require_model(file: BinaryIO, what: str) -> None:
    """Raise `UsageError` unless the file carries the identifier of a `.tflite` file.

    A damaged model passes: it is measured, and its cells end `failed` with the reader's reason.
    """
    if file.read(_IDENTIFIER_END)[4:] != FILE_IDENTIFIER:
        raise UsageError(
            f"{what}: not a model: a .tflite file has {FILE_IDENTIFIER.decode()} as its bytes 4 to 7; name a "
            ".tflite file, or a skeleton whose name ends with .skel"
        )


def require_labelled_data(file: BinaryIO, what: str) -> None:
    """Raise `UsageError` unless the archive has the arrays; they are read only where the model runs."""
    try:
        if file.read(len(_ZIP_STARTS[0])) not in _ZIP_STARTS:
            raise zipfile.BadZipFile("it is no zip archive")
        with zipfile.ZipFile(file) as archive:
            names = {member.filename for member in archive.infolist()}
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"{what}: labelled data is a .npz file (numpy.savez), and this file is not one: {error}"
        ) from error
    if LABELS_MEMBER not in names or len(names) < 2:
        arrays = sorted(name for name in names if name.endswith(".npy"))
        raise UsageError(
            f"{what}: labelled data has an array 'labels' and one per input (or 'inputs'); "
            f"this has {', '.join(arrays) or 'no array'}"
        )


def require_either(file: BinaryIO, what: str) -> None:
    """Raise `UsageError` for what is neither a model nor labelled data: all that other machines upload."""
    start = file.read(_IDENTIFIER_END)
    file.seek(0)
    if start.startswith(_ZIP_STARTS):
        require_labelled_data(file, what)
    else:
        require_model(file, what)
