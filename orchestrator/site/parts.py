"""Takes unchanged parts of a site from the one that is replaced: each is known by a digest of its content.

A part has files, and a summary: what the pages over all campaigns need of it, so that they are made without
reading its cells again.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace as View
from typing import Any

import orchestrator
import templates
from agent import wire
from orchestrator.results.format import plain
from orchestrator.site import links
from runtime import common, model


class Parts:
    """The parts of an older site by name, and those of the new one: digests and files, and summaries."""

    def __init__(self, older: Path, known: dict[str, Any], summaries: dict[str, View]) -> None:
        """Use `Parts.of`."""
        self._older = older
        self._known = known
        self._summaries = summaries
        self.new: dict[str, dict[str, Any]] = {}
        self.summaries: dict[str, View] = {}
        self._open: list[str] | None = None
        self._lacks = False

    @classmethod
    def of(cls, site: Path) -> "Parts":
        """Return the parts of a site; none where there is none, or where its lists cannot be read."""
        try:
            manifest = json.loads((site / links.MANIFEST).read_text(encoding="utf-8"))
            summaries = (site / links.SUMMARIES).read_text(encoding="utf-8")
            if manifest["summaries"] != text_digest(summaries):
                return cls(site, {}, {})
            return cls(site, dict(manifest["parts"]), vars(read_views(summaries)))
        except (OSError, ValueError, KeyError, TypeError):
            return cls(site, {}, {})

    def take(self, name: str, digest: str, folder: Path) -> bool:
        """Link the files of a part into the new site if the older one has it with this content."""
        known = self._known.get(name)
        if not isinstance(known, dict) or known.get("content") != digest or name not in self._summaries:
            return False
        names = known.get("files")
        # A list that was damaged or edited must not lead out of the two folders.
        if not isinstance(names, list) or not all(map(self._is_inside, names)):
            return False
        try:
            # Hard links: an unchanged part takes neither the time nor the room of a copy.
            for below in dict.fromkeys(file.rpartition("/")[0] for file in names):
                (folder / below).mkdir(parents=True, exist_ok=True)
            for file in names:
                os.link(f"{self._older}/{file}", f"{folder}/{file}", follow_symlinks=False)
        except OSError:
            # A file is missing there, or its file system has no hard links.
            for file in names:
                (folder / file).unlink(missing_ok=True)
            return False
        self.new[name] = known
        self.summaries[name] = self._summaries[name]
        return True

    def _is_inside(self, name: object) -> bool:
        return isinstance(name, str) and ".." not in Path(name).parts and not Path(name).is_absolute()

    @contextmanager
    def written(self, name: str, digest: str) -> Iterator[None]:
        """Collect the files that are written meanwhile as those of a part."""
        self._open, self._lacks = [], False
        yield
        # None equals no digest: the next build makes the part anew.
        self.new[name] = {"content": None if self._lacks else digest, "files": self._open}
        self._open = None

    def keep(self, name: str, summary: View) -> None:
        """Keep the summary of a part that was written, as a later build will read it."""
        self.summaries[name] = read_views(written_views(summary))

    def mark_lacking(self) -> None:
        """Mark the part that is being written: something could not be read, and a later build tries again."""
        self._lacks = True

    def note(self, path: str) -> None:
        """Note a file that was written."""
        if self._open is not None:
            self._open.append(path)


def written_views(value: object) -> str:
    """Write views, records of plain values and moments as JSON."""
    return json.dumps(value, separators=(",", ":"), default=_plain)


def read_views(text: str) -> Any:
    """Return written views; a record has become a view, a moment its text. Raises `ValueError`."""
    return json.loads(text, object_hook=lambda found: View(**found))


def _plain(value: Any) -> Any:
    return vars(value) if isinstance(value, View) else plain(value)


def text_digest(text: str) -> str:
    """Digest a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def digest_of(content: object) -> str:
    """Digest what a part is made of: the records, and the program that makes pages of them."""
    # The `repr` of records is the same in every process; that of sets is not, and callers sort them.
    return text_digest(f"{_program()} {content!r}")


@cache
def _program() -> str:
    found = hashlib.sha256()
    # Of agent and runtime, what the orchestrator may import.
    for package in (orchestrator, templates, wire, common, model):
        root = Path(package.__file__ or "").parent
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                found.update(path.read_bytes())
    return found.hexdigest()
