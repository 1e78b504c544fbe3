"""Takes unchanged parts of a site from the one that is replaced: each is known by a digest of its content."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import orchestrator
import templates
from orchestrator.site import links


class Parts:
    """The parts of an older site by name, and those of the new one: their digests and files."""

    def __init__(self, older: Path, known: dict[str, Any]) -> None:
        """Use `Parts.of`."""
        self._older = older
        self._known = known
        self.new: dict[str, dict[str, Any]] = {}
        self._open: list[str] | None = None

    @classmethod
    def of(cls, site: Path) -> Parts:
        """Return the parts of a site; none where there is none, or where its list cannot be read."""
        try:
            known = json.loads((site / links.MANIFEST).read_text(encoding="utf-8"))["parts"]
        except (OSError, ValueError, KeyError, TypeError):
            known = {}
        return cls(site, known if isinstance(known, dict) else {})

    def take(self, name: str, digest: str, folder: Path) -> bool:
        """Link the files of a part into the new site if the older one has it with this content."""
        known = self._known.get(name)
        if not isinstance(known, dict) or known.get("content") != digest:
            return False
        names = known.get("files")
        if not isinstance(names, list) or not all(map(self._is_inside, names)):
            return False
        try:
            for file in names:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                os.link(self._older / file, folder / file, follow_symlinks=False)
        except OSError:
            # A file is missing there, or its file system has no hard links.
            for file in names:
                (folder / file).unlink(missing_ok=True)
            return False
        self.new[name] = known
        return True

    def _is_inside(self, name: object) -> bool:
        return isinstance(name, str) and ".." not in Path(name).parts and not Path(name).is_absolute()

    @contextmanager
    def written(self, name: str, digest: str) -> Iterator[None]:
        """Collect the files that are written meanwhile as those of a part."""
        self._open = []
        yield
        self.new[name] = {"content": digest, "files": self._open}
        self._open = None

    def note(self, path: str) -> None:
        """Note a file that was written."""
        if self._open is not None:
            self._open.append(path)


def digest_of(content: object) -> str:
    """Digest what a part is made of: the records, and the program that makes pages of them."""
    return hashlib.sha256(f"{_program()} {content!r}".encode("utf-8", "surrogatepass")).hexdigest()


@cache
def _program() -> str:
    found = hashlib.sha256()
    for package in (orchestrator, templates):
        root = Path(package.__file__ or "").parent
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                found.update(path.read_bytes())
    return found.hexdigest()
