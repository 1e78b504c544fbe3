"""Takes result files of other tools into the farm, marked as imported: shown beside its own, never judged."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config.clock import utc_now
from orchestrator.db.campaigns import imports
from orchestrator.db.engine.sessions import Database
from orchestrator.errors import UsageError
from orchestrator.farm.local.quota import account
from orchestrator.manifest.schema import NAME_PATTERN
from orchestrator.policy.fingerprint import digest
from orchestrator.results.imports import MOST_BYTES, NotReadableError, read_results
from orchestrator.results.records import IMPORTED_FILE, IMPORTED_SHA256, IMPORTED_TOOL

_NO_DEVICE = "unknown"


@dataclass(frozen=True, slots=True)
class Names:
    """Names that the caller gives in place of those in the files."""

    model: str | None = None
    delegate: str | None = None
    device: str | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """A campaign of imported results. `is_new` False: the same files were imported before."""

    campaign_id: str
    cells: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class Importing:
    """Stores results that other tools measured."""

    database: Database

    def take(self, files: Sequence[Path], campaign: str, names: Names) -> Taken:
        """Store the results of all files, or none. Raises `UsageError` for a file that is not understood."""
        if not re.fullmatch(NAME_PATTERN, campaign):
            raise UsageError(f"--campaign {campaign!r}: expected letters, digits and . _ + - (at most 100)")
        cells = [cell for file in files for cell in _cells(file, names)]
        told = [[cell.facts, cell.model, cell.delegate, cell.device] for cell in cells]
        content = digest({"imported": told, "name": campaign})
        with self.database.write() as turn:
            known = imports.find(turn, content)
            if known is not None:
                return Taken(known, len(cells), is_new=False)
            made = imports.add(turn, campaign, content, cells, account(), utc_now())
        return Taken(made, len(cells), is_new=True)


def _cells(file: Path, names: Names) -> Iterator[imports.ImportedCell]:
    content = _content(file)
    sha256 = hashlib.sha256(content).hexdigest()
    try:
        found = read_results(content)
    except NotReadableError as error:
        raise UsageError(f"{file}: {error}") from error
    for number, result in enumerate(found):
        said = f"imported: {result.tool}, file {file.name}, sha256 {sha256[:12]}; not measured by this farm"
        measurement = result.measurement.model_copy(update={"warnings": (said,)})
        suffix = f"-{number + 1}" if len(found) > 1 else ""
        yield imports.ImportedCell(
            model=names.model or result.model or file.stem,
            delegate=(names.delegate or f"{result.tool}-{result.delegate}") + suffix,
            kind=result.tool,
            device=re.sub(r"[^A-Za-z0-9._-]+", "-", names.device or result.device or _NO_DEVICE)[:100],
            measurement=measurement,
            facts={IMPORTED_TOOL: result.tool, IMPORTED_FILE: file.name, IMPORTED_SHA256: sha256},
        )


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
    if len(content) > MOST_BYTES:
        raise UsageError(f"{file}: larger than {MOST_BYTES >> 20} MiB; a result file of a tool is smaller")
    return content
