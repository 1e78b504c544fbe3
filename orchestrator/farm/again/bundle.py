"""A cell as one file that any machine can measure: campaign file, model or skeleton, inputs, and the result.

A bundle is a zip archive of plain names. `bundle.json` has the row of the results, its environment and the
digests of what it was measured and judged by; `models.yaml` names the files beside it.
"""

import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from agent.wire.messages import Device
from orchestrator.errors import UsageError
from orchestrator.farm.again.reproduction import Reproduction
from orchestrator.results.export import result_json
from orchestrator.results.format import plain
from orchestrator.results.records import CellRecord
from orchestrator.sources.zoo import zoo_model

VERSION: Final = 1
"""Counts the incompatible changes of a bundle's form; another one is refused."""

_ABOUT, _DOCUMENT = "bundle.json", "models.yaml"
_LONGEST_TEXT_BYTES: Final = 16 << 20
"""Bytes of each of the two texts, at most. Chosen above any row; a larger one is no bundle of the farm's."""

_MOST_FILES: Final = 200
"""Files of a bundle. Chosen above those of the most input sets that a model may have."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""A name in a bundle: of no folder, and with nothing that a shell or a path could take for more."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle whose files were taken out: its campaign file, with their paths, and what it says of a row."""

    document: Mapping[str, Any]
    row: Mapping[str, Any]
    cell_id: str
    device: str
    device_name: str
    environment: Mapping[str, str]

    def here(self, devices: tuple[Device, ...]) -> dict[str, Any]:
        """Return the campaign file for the present device that is most like the row's.

        Raises `UsageError` where none hosts the delegate. What a delegate chose by timing is left out on
        another device, whose kernels are others.
        """
        found = deepcopy(dict(self.document))
        ((name, options),) = found["delegates"].items()
        hosts = [one for one in devices if options["kind"] in one.delegates]
        if not hosts:
            raise UsageError(f"no device here hosts the delegate {options['kind']}; see farm devices")
        # False comes before True: first a device of the row's name, among several that with its id.
        device = min(hosts, key=lambda one: (one.name != self.device_name, one.device_id != self.device))
        if device.name != self.device_name:
            found["delegates"][name] = {key: one for key, one in options.items() if key != "choices"}
        return found | {"devices": [{"name": device.device_id}]}


def write_bundle(path: Path, row: CellRecord, found: Reproduction) -> None:
    """Write a cell's bundle. Raises `UsageError` where a file of it is missing, or `path` cannot be new."""
    # Without devices: the machine that reads the bundle names its own (`Bundle.here`).
    document = {key: one for key, one in deepcopy(dict(found.document)).items() if key != "devices"}
    files = {}
    for holder, key in _sources(document):
        source = Path(str(holder[key]))
        if str(source).startswith("zoo:"):
            source = zoo_model(str(source).removeprefix("zoo:")).skeleton
        if not source.is_file():
            raise UsageError(
                f"cell {row.cell_id}: its file {source} is not in the store, so it has no bundle"
            )
        suffix = source.suffix or {"source": ".tflite", "data": ".npy"}.get(key, ".data")
        name = f"{source.stem[:60]}{suffix}"
        files[name] = source
        holder[key] = name
    settings = {} if row.measurement is None else row.measurement.settings
    about = {
        "version": VERSION,
        "cell_id": row.cell_id,
        "row": result_json(row),
        "device": row.device,
        "device_name": row.device_name,
        "environment": row.environment,
        "model_sha256": row.model_sha256,
        "inputs_sha256": settings.get("pool_sha256", ""),
        "reference": None if row.measurement is None else row.measurement.accuracy.reference,
    }
    try:
        with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_ABOUT, json.dumps(about, indent=1, default=plain))
            archive.writestr(_DOCUMENT, yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
            for name, source in files.items():
                archive.write(source, name)
    except OSError as error:
        raise UsageError(
            f"--bundle {path}: {error.strerror}; name a new file in a folder that exists"
        ) from error


def read_bundle(path: Path, folder: Path, most_bytes: int) -> Bundle:
    """Take a bundle's files out into an empty folder; `most_bytes`: of each of them.

    Raises `UsageError` for what is no bundle of this version, and for names and sizes that none has.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {one.filename: one for one in archive.infolist()}
            if not {_ABOUT, _DOCUMENT} <= members.keys() or len(members) > _MOST_FILES:
                raise UsageError(f"{path}: not a bundle: farm repro CELL --bundle writes one")
            about = json.loads(_read(archive, members[_ABOUT], _LONGEST_TEXT_BYTES))
            if about.get("version") != VERSION:
                raise UsageError(
                    f"{path}: a bundle of version {about.get('version')}; this farm reads version {VERSION}"
                )
            document = yaml.safe_load(_read(archive, members[_DOCUMENT], _LONGEST_TEXT_BYTES))
            for holder, key in _sources(document):
                name = str(holder[key])
                # Taken out one by one, under checked names: any other path could lead out of the folder.
                if name not in members or not _NAME.fullmatch(name):
                    raise UsageError(f"{path}: not a whole bundle: {name!r} is not in it")
                (folder / name).write_bytes(_read(archive, members[name], most_bytes))
                holder[key] = str((folder / name).absolute())
            # What `Bundle.here` reads: the kind and the options of one delegate.
            ((_, options),) = document["delegates"].items()
            options["kind"]
            names = ("row", "cell_id", "device", "device_name", "environment")
            return Bundle(document, **{one: about[one] for one in names})
    # `zipfile` raises `RuntimeError` for encrypted members and for forms that it lacks. It lets `zlib.error`
    # through, and ends with `EOFError` where a member is cut off.
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, RuntimeError,
            zipfile.BadZipFile, zlib.error, yaml.YAMLError) as error:  # fmt: skip
        raise UsageError(f"{path}: not a bundle that can be read: {error}") from error


def _sources(document: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each place of a campaign file of one model that names a file: a mapping and its key."""
    (model,) = document["models"]
    yield model, "source"
    for one in model.get("inputs", {}).values():
        if "data" in one:
            yield one, "data"
    if "accuracy" in model:
        yield model["accuracy"], "dataset"


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, most_bytes: int) -> bytes:
    # `zipfile` reads further forms, whose errors are others.
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise UsageError(f"{member.filename}: packed in a form that no bundle has")
    # What the archive says of a size is not what it holds.
    with archive.open(member) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise UsageError(f"{member.filename}: more than {most_bytes} bytes in a bundle")
    return content
