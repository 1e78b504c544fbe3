"""Checks that a source is a model, or labelled data. Anything else is refused before it is in the store.

A campaign file may come from a stranger and is submitted with its submitter's rights, often an
administrator's. It can name any file that they can read, so what is no model is neither stored, nor sent to
an agent, nor quoted in a message.
"""

import re
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, BinaryIO, Final, cast

from orchestrator.errors import FarmError, UsageError
from orchestrator.manifest.campaign import Campaign, ModelEntry, scheme_of
from orchestrator.results.records import ModelOrigin
from orchestrator.sources.zoo import zoo_models
from runtime.model.schema import FILE_IDENTIFIER

_USER: Final = re.compile(r"(?<=://)[^/\s'\"?#@]*@")
_QUERY: Final = re.compile(r"(://[^\s'\"?#]*\?)[^\s'\"#,}\]]+")


def without_credentials(text: str) -> str:
    """Return the text without users, passwords and queries of addresses, which may hold signatures."""
    return _QUERY.sub(r"\1removed", _USER.sub("", text))


def origins_of(campaign: Campaign, files: Mapping[str, str]) -> dict[str, ModelOrigin]:
    """Return the origin of each model by its id. `files`: the known sha256 of the models' files."""
    licences = _licences()
    return {
        entry.id: ModelOrigin(_source(entry), licences.get(files.get(entry.id, "")))
        for entry in campaign.models
    }


def _source(entry: ModelEntry) -> str:
    """Return the source as the user wrote it, a file of the command line as a campaign file would name it."""
    is_bare_file = entry.place is None and scheme_of(entry.source) == "file"
    source = f"./{Path(entry.source).name}" if is_bare_file else without_credentials(entry.source)
    return source if entry.signature is None else f"{source} (signature {entry.signature})"


def _licences() -> Mapping[str, str]:
    """Return the licence of every file that the zoo knows, by sha256."""
    try:
        return {model.sha256: model.licence for model in zoo_models().values()}
    except FarmError:
        return {}


Requirement = Callable[[BinaryIO, str], None]
"""Raises `UsageError`, naming the file by its second argument, for content of another kind."""

TRUTHS: Final = frozenset({"ground_truth.txt", "instances.json"})
"""Files with the truth of a data set of pictures (`runtime.measure.accuracy.data`)."""

_TAR_MAGIC: Final = b"ustar"
_TAR_MAGIC_AT: Final = 257
"""Offset of the magic in the first header of a tar (POSIX.1-1988)."""

_IDENTIFIER_END: Final = 8
"""Bytes up to the end of a FlatBuffer's file identifier, which follows the offset of its root table."""


@dataclass(frozen=True, slots=True)
class _Other:
    """A kind of file that is often given in place of a `.tflite` file; `way`: what to do with it."""

    kind: str
    suffixes: tuple[str, ...]
    starts: tuple[bytes, ...]
    way: str


_OTHERS: Final = (
    # A protocol buffer that begins with its ir_version (field 1) and producer_name (field 2).
    _Other(
        "an ONNX model",
        (".onnx",),
        tuple(bytes((8, version, 18)) for version in range(3, 16)),
        "convert it: pip install onnx2tf; onnx2tf -i MODEL.onnx -o FOLDER",
    ),
    # A pickle of protocol 2; newer files are zip archives, which their names tell.
    _Other(
        "a PyTorch file",
        (".pt", ".pth", ".pt2", ".ckpt", ".safetensors"),
        (b"\x80\x02",),
        "convert its module in Python, after pip install litert-torch: "
        "litert_torch.convert(module.eval(), (sample,)).export('MODEL.tflite')",
    ),
    _Other(
        "a Keras model",
        (".keras", ".h5", ".hdf5"),
        (b"\x89HDF\r\n\x1a\n",),
        "convert it in Python: "
        "tf.lite.TFLiteConverter.from_keras_model(tf.keras.models.load_model('FILE')).convert()",
    ),
    _Other(
        "a TensorFlow graph",
        (".pb",),
        (),
        "convert its folder in Python: tf.lite.TFLiteConverter.from_saved_model('FOLDER').convert()",
    ),
    _Other(
        "a page",
        (".html",),
        (b"<!", b"<html", b"<HTML"),
        "give the address of the file itself: on GitHub with /raw/ in place of /blob/, on Hugging Face with "
        "/resolve/",
    ),
)

_NPY_START: Final = b"\x93NUMPY"
_ZIP_STARTS: Final = (b"PK\x03\x04", b"PK\x05\x06")


def require_model(file: BinaryIO, what: str) -> None:
    """Raise `UsageError` unless the file carries the identifier of a `.tflite` file.

    A damaged model passes: it is measured, and its cells end `failed` with the reader's reason.
    """
    start = file.read(_IDENTIFIER_END)
    if start[4:] == FILE_IDENTIFIER:
        return
    for other in _OTHERS:
        if what.partition(" (")[0].lower().endswith(other.suffixes) or start.startswith(other.starts):
            raise UsageError(f"{what}: {other.kind}, not a .tflite file; {other.way}")
    raise UsageError(
        f"{what}: not a model: a .tflite file has {FILE_IDENTIFIER.decode()} as its bytes 4 to 7; name a "
        ".tflite file, or a skeleton whose name ends with .skel"
    )


_LONGEST_READ: Final = 16 << 20
"""Bytes of an archive that are read at once, at most, such as the list of a zip's members. Chosen: that of
200,000 pictures; in memory it takes ten times as much."""

_MOST_MEMBERS: Final = 200_000
"""Members of a tar. Chosen: four times the pictures of ImageNet's validation; each takes a kilobyte."""


class _ShortReads:
    """A file for a reader of archives, which takes the sizes of what it reads from the file itself."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes. Raises `ValueError` for more than are read at once."""
        found = self._file.read(size if 0 <= size <= _LONGEST_READ else _LONGEST_READ + 1)
        if len(found) > _LONGEST_READ:
            raise ValueError(f"a list of members or a name of more than {_LONGEST_READ >> 20} MiB")
        return found


def require_labelled_data(file: BinaryIO, what: str) -> None:
    """Raise `UsageError` unless it has pictures or arrays; they are read only where the model runs."""
    if _is_tar(file):
        _require_truth(file, what)
        return
    try:
        # `zipfile` looks for an archive at the end, and takes any file that has one appended.
        if file.read(len(_ZIP_STARTS[0])) not in _ZIP_STARTS:
            raise zipfile.BadZipFile("it is no zip archive")
        with zipfile.ZipFile(cast("IO[bytes]", _ShortReads(file))) as archive:
            names = {member.filename for member in archive.infolist()}
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"{what}: labelled data is a .npz file (numpy.savez), or a .zip or .tar of pictures, and this "
            f"file is neither: {error}"
        ) from error
    if not TRUTHS.isdisjoint(names):
        return
    arrays = sorted(name for name in names if name.endswith(".npy"))
    if len(arrays) < 2:
        raise UsageError(
            f"{what}: labelled data has an array 'labels', or the wanted outputs, and one per input (or "
            f"'inputs'), or pictures with {' or '.join(sorted(TRUTHS))}; this has "
            f"{', '.join(arrays) or 'neither'}"
        )


def _require_truth(file: BinaryIO, what: str) -> None:
    try:
        with tarfile.open(fileobj=cast("IO[bytes]", _ShortReads(file)), mode="r:") as archive:
            # `tar -C FOLDER -cf FILE .` puts ./ before its names.
            names = {member.name.removeprefix("./") for member in islice(archive, _MOST_MEMBERS)}
            if archive.next() is not None:
                raise ValueError(f"it has more than {_MOST_MEMBERS} members")
    except (OSError, ValueError, tarfile.TarError) as error:
        raise UsageError(f"{what}: a damaged .tar: {error}") from error
    if TRUTHS.isdisjoint(names):
        raise UsageError(f"{what}: a .tar of pictures has {' or '.join(sorted(TRUTHS))}; this has neither")


def _is_tar(file: BinaryIO) -> bool:
    """Whether a file is a tar archive; it is read from its begin afterwards."""
    file.seek(_TAR_MAGIC_AT)
    magic = file.read(len(_TAR_MAGIC))
    file.seek(0)
    return magic == _TAR_MAGIC


def require_array(file: BinaryIO, what: str) -> None:
    """Raise `UsageError` unless the file is a `.npy`: the data of an input, which its runner reads."""
    if not file.read(_IDENTIFIER_END).startswith(_NPY_START):
        raise UsageError(f"{what}: the data of an input is a .npy file, and this file is not one")


def require_uploaded(file: BinaryIO, what: str) -> None:
    """Raise `UsageError` for a file that is none of those that other machines upload."""
    start = file.read(_IDENTIFIER_END)
    file.seek(0)
    if start.startswith(_NPY_START):
        return
    if start.startswith(_ZIP_STARTS) or _is_tar(file):
        file.seek(0)
        require_labelled_data(file, what)
    else:
        require_model(file, what)
