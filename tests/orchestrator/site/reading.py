"""Reads built pages the way a browser does: elements, links, visible text."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "link", "br", "img", "input", "hr", "wbr"}
SELF_CLOSING = {"path", "rect", "circle", "line"}


@dataclass
class Page:
    """`elements` are (tag, attributes) in order; `unbalanced` names the first tag that does not nest."""

    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    text: str = ""
    unbalanced: str = ""

    def attributes(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def values(self, attribute: str) -> list[str]:
        return [attributes[attribute] for _, attributes in self.elements if attribute in attributes]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.page.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.page.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in SELF_CLOSING:
            self.page.unbalanced = self.page.unbalanced or f"<{tag}/>"

    def handle_endtag(self, tag: str) -> None:
        expected = self._open.pop() if self._open else "nothing"
        if expected != tag:
            self.page.unbalanced = self.page.unbalanced or f"</{tag}> closes {expected} at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        self.page.text += data


@cache
def read_page(path: Path) -> Page:
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    reader.page.text = " ".join(reader.page.text.split())
    return reader.page
