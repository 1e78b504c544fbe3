"""The references that an agent keeps: those that its runners made, and those that the farm named.

<folder>/<model and inputs>/<key>.npz      outputs, as `runtime.measure.reference` writes them
<folder>/<model and inputs>/<key>.failed   why they cannot be made
<attempt's folder>/reference-<kind>.npz    what its runner made
<attempt's folder>/references.json         the records of that

A runner may read the part of its own model and write nowhere into the folder: what a delegate or a model
leaves here would decide over others.
"""

import contextlib
import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ConfigDict, TypeAdapter

from agent.attempt.artifacts import ArtifactError, copy_verified, put_artifact, verified_file
from agent.processes.left_files import open_left
from agent.wire.messages import JobSpec
from agent.wire.reference import MAX_MADE, OWN_KIND, ReferenceRecord, inputs_id
from runtime.common.durable import write_atomically

LARGEST_FOLDER_BYTES: Final = 2 << 30
"""Bytes that an agent keeps of references. Chosen: outputs of thousands of models, since one reference is
rarely over a megabyte. Smaller, and an agent of many models makes or fetches references again."""

_MADE_FILE: Final = "references.json"
_MOST_RECORD_BYTES: Final = 512 * 1024
"""Bytes of the records that are read: `MAX_MADE` of them, each with a text of at most 8192 characters. The
runner writes them, so they may hold anything."""

_RECORDS: Final = TypeAdapter(list[ReferenceRecord], config=ConfigDict(defer_build=True))

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failed:
    """A reference that could not be made within `limit_s`; an attempt that gives more time tries again."""

    why: str
    limit_s: float


def kept_path(folder: Path, key: str) -> Path:
    """Return where a reference is kept, in the part of `folder` that is its model's."""
    return folder / f"{key}.npz"


def read_failure(folder: Path, key: str) -> Failed | None:
    """Return why a reference could not be made, or None."""
    try:
        stored = json.loads(_failure_path(folder, key).read_text(encoding="utf-8"))
        return Failed(str(stored["why"]), float(stored["limit_s"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def made_path(attempt_folder: Path, kind: str) -> Path:
    """Return where a runner leaves a reference that it made."""
    return attempt_folder / f"reference-{kind}.npz"


def write_made(attempt_folder: Path, records: Sequence[ReferenceRecord]) -> None:
    """Say which references a runner has made."""
    write_atomically(attempt_folder / _MADE_FILE, _RECORDS.dump_json(list(records)))


@dataclass(frozen=True, slots=True)
class ReferenceFolder:
    """The folder of an agent, and the store from which references travel."""

    root: Path
    store: Path

    def prepare(self, job: JobSpec) -> Path:
        """Return the part of the job's model and inputs, with what the farm named in the job.

        What cannot be used is left out and said in the log: the runner makes it anew.
        """
        folder = self._of(job)
        folder.mkdir(parents=True, exist_ok=True)
        for record in job.references:
            try:
                self._place(folder, record)
            except (OSError, ArtifactError) as error:
                log.warning("model %s: a reference is not used: %s", job.model_id, error)
        for path in folder.iterdir():
            # The time of the last use, by which `_bound` chooses what goes.
            with contextlib.suppress(OSError):
                path.touch()
        return folder

    def keep(self, job: JobSpec, attempt_folder: Path) -> tuple[ReferenceRecord, ...]:
        """Keep what an attempt's runner made; return what the farm may hand on, its files in the store."""
        made = _made(attempt_folder)
        of_farm = {record.key for record in job.references if record.sha256 is not None}
        kept = []
        for record in made:
            try:
                # What `prepare` placed for the farm counts for more than what this runner made.
                if record.key not in of_farm:
                    self._keep(self._of(job), record, attempt_folder)
                if record.kind != OWN_KIND:
                    if record.sha256 is not None:
                        put_artifact(self.store, made_path(attempt_folder, record.kind), record.sha256)
                    kept.append(record)
            except (OSError, ArtifactError) as error:
                log.warning("model %s: a reference is not kept: %s", job.model_id, error)
        if made:
            self._bound()
        return tuple(kept)

    def _of(self, job: JobSpec) -> Path:
        what = f"{job.model_sha256} {inputs_id(job.inputs)}"
        return self.root / hashlib.sha256(what.encode()).hexdigest()

    def _place(self, folder: Path, record: ReferenceRecord) -> None:
        """Take over a record of the farm. Raises `ArtifactError`, `OSError`."""
        target = kept_path(folder, record.key)
        if record.sha256 is None:
            _write_failure(folder, record)
        elif not _hashes_to(target, record.sha256):
            # What is there instead is damaged, or another agent's word counts for more.
            target.unlink(missing_ok=True)
            source = verified_file(self.store, record.sha256, record.size_bytes, "reference")
            copy_verified(source, target, record.sha256)

    def _keep(self, folder: Path, record: ReferenceRecord, attempt_folder: Path) -> None:
        """Keep one record of a runner. Raises `ArtifactError`, `OSError`."""
        folder.mkdir(parents=True, exist_ok=True)
        if record.sha256 is None:
            _write_failure(folder, record)
        else:
            copy_verified(
                made_path(attempt_folder, record.kind), kept_path(folder, record.key), record.sha256
            )

    def _bound(self) -> None:
        """Remove what was used longest ago until the folder is within its bound."""
        stored = []
        for path in self.root.rglob("*"):
            with contextlib.suppress(OSError):
                facts = path.stat()
                if path.is_file():
                    stored.append((facts.st_mtime_ns, facts.st_size, path))
        total = sum(size for _, size, _ in stored)
        # By the time of the last use, which comes first.
        for _, size, path in sorted(stored):
            if total <= LARGEST_FOLDER_BYTES:
                return
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size
                # Only an empty one goes; another attempt may have filled it meanwhile.
                path.parent.rmdir()


def _made(attempt_folder: Path) -> list[ReferenceRecord]:
    try:
        with open_left(attempt_folder / _MADE_FILE) as file:
            # A longer file is cut off, so it is no JSON any more, and refused.
            return _RECORDS.validate_json(file.read(_MOST_RECORD_BYTES))[:MAX_MADE]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        log.warning("what a runner says of its references cannot be read: %s", error)
        return []


def _failure_path(folder: Path, key: str) -> Path:
    return folder / f"{key}.failed"


def _write_failure(folder: Path, record: ReferenceRecord) -> None:
    stored = {"why": record.failure, "limit_s": record.limit_s}
    write_atomically(_failure_path(folder, record.key), json.dumps(stored).encode())


def _hashes_to(path: Path, sha256: str) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False
