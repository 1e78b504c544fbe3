"""Checks a built site: every link leads to a place in it, and nothing is fetched from elsewhere."""

import json
import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from orchestrator.errors import UsageError
from orchestrator.site import links
from orchestrator.site.shards import read_shard

_LOADED = {"img", "script", "link", "iframe", "source", "video", "audio", "object", "embed"}
"""Elements whose address a browser fetches by itself."""

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)


class _Page(HTMLParser):
    """The ids of a page, and its addresses with the elements that have them."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.addresses: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element is called and leads to."""
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            if name in ("href", "src") and value:
                self.addresses.append((tag, value))


def faults_of(site: Path) -> Iterator[str]:
    """Yield each fault of a site in one line. Raises `UsageError` where the folder holds none."""
    manifest = site / links.MANIFEST
    try:
        parts = json.loads(manifest.read_text(encoding="utf-8"))["parts"]
        listed = [str(file) for part in parts.values() for file in part["files"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(
            f"{site} holds no site of this release ({links.MANIFEST}); farm site build writes one"
        ) from None
    yield from (f"{file} is missing" for file in listed if not (site / file).is_file())
    root = site.resolve()
    for path in sorted(root.rglob("*.html")):
        # A flame graph stands alone, and leads nowhere.
        if path.parent.name != "flames":
            yield from (f"{path.relative_to(root)}: {fault}" for fault in _faults(root, path))


def _faults(root: Path, path: Path) -> Iterator[str]:
    for tag, address in dict.fromkeys(_read(path).addresses):
        if address.startswith("data:"):
            continue
        if _ADDRESS.match(address):
            if tag in _LOADED:
                yield f"{address} is fetched from elsewhere"
            continue
        file, _, anchor = address.partition("#")
        there = (path.parent / unquote(file)).resolve() if file else path
        if not there.is_relative_to(root) or not there.is_file():
            yield f"{address} leads to no file of the site"
        elif file and there == root / links.ANY_CELL and anchor:
            name, _, cell = anchor.partition("/")
            if name not in (rows := _shards(root)) or (cell and cell not in rows[name]):
                yield f"{address} leads to no cell of the site"
        elif there.suffix == ".html" and not _leads_somewhere(there, unquote(anchor)):
            yield f"{address} leads to no place of that page"


def _leads_somewhere(page: Path, anchor: str) -> bool:
    """Whether a page has the place of an anchor; `NAME=VALUE` is no place, but what its script is to show."""
    return not anchor or "=" in anchor or anchor in _read(page).ids


@cache
def _shards(root: Path) -> dict[str, frozenset[str]]:
    """Return the ends of the addresses of each shard's cells; of a damaged one none."""
    found = {}
    for path in root.glob(links.shard("*")):
        try:
            found[path.stem] = frozenset(read_shard(path.read_text(encoding="utf-8")))
        except ValueError:
            found[path.stem] = frozenset()
    return found


@cache
def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    return page
