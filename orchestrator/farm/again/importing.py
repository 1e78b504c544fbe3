"""Takes result files of other tools into the farm, marked as imported: shown beside its own, never judged."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.config.clock import utc_now
from orchestrator.db.campaigns import imports
from orchestrator.db.engine.sessions import Database
from orchestrator.errors import UsageError
from orchestrator.farm.local.quota import account
from orchestrator.manifest.schema import NAME_PATTERN
from orchestrator.policy.fingerprint import digest
from orchestrator.results.imports.reading import MOST_BYTES, read_results
from orchestrator.results.imports.reports import NotReadableError
from orchestrator.results.records import IMPORTED_FILE, IMPORTED_SHA256, IMPORTED_TOOL

_NO_DEVICE = "unknown"

_LONGEST_NAME: Final = 100
"""Characters of the name of an imported model or delegate, as of one in a models.yaml."""


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
        # Every file is read before the write begins: a bad one leaves nothing, and a slow one blocks nobody.
        cells = [cell for file in files for cell in _cells(file, names)]
        told = [[cell.facts, cell.model, cell.delegate, cell.device] for cell in cells]
        content = digest({"imported": told, "name": campaign})
        # Looked up in the write that stores: of two equal imports at once, the second finds the first.
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
    alike: Counter[tuple[str | None, str, str | None]] = Counter()
    for result in found:
        same = result.model, result.delegate, result.device
        alike[same] += 1
        said = f"imported: {result.tool}, file {file.name}, sha256 {sha256[:12]}; not measured by this farm"
        # Several runs of one model in a log are columns of their own.
        suffix = f"-{alike[same]}" if alike[same] > 1 else ""
        measurement = result.measurement
        if measurement is not None:
            measurement = measurement.model_copy(update={"warnings": (said,)})
        yield imports.ImportedCell(
            model=_bounded(names.model or result.model or file.stem),
            delegate=_bounded((names.delegate or f"{result.tool}-{result.delegate}") + suffix),
            kind=result.tool,
            device=re.sub(r"[^A-Za-z0-9._-]+", "-", names.device or result.device or _NO_DEVICE)[:100],
            measurement=measurement,
            reason=f"{result.status}; {said}" if measurement is None else "",
            facts={IMPORTED_TOOL: result.tool, IMPORTED_FILE: file.name, IMPORTED_SHA256: sha256},
        )


def _bounded(name: str) -> str:
    """Return a name of a stranger's file as one short line; long ones stay distinct by their hash."""
    line = "".join(character if character.isprintable() else "?" for character in name)
    if len(line) <= _LONGEST_NAME:
        return line
    # 13: the tilde, and 12 hexadecimal digits.
    return f"{line[: _LONGEST_NAME - 13]}~{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            # One byte more than allowed tells a larger file, also a pipe or one that is growing.
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
    if len(content) > MOST_BYTES:
        raise UsageError(f"{file}: larger than {MOST_BYTES >> 20} MiB; a result file of a tool is smaller")
    return content
