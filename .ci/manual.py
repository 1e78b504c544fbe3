"""Hooks of the manual's build (`mkdocs.yml`): pages from outside `docs/`, and links that lead there.

Files of the checkout are not part of the manual, so that a link to one becomes its path.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_ROOT = Path(__file__).resolve().parent.parent
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#]+)(?:#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add CONTRIBUTING.md as a page."""
    content = (_ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    inside = re.sub(r"\]\((?!docs/|https?:|#)", "](../", content).replace("](docs/", "](")
    files.append(File.generated(config, "contributing.md", content=inside))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace links to files of the checkout by their paths."""
    return _OUTSIDE.sub(_path, markdown)


def _path(link: re.Match[str]) -> str:
    text, place = link[1].strip("`"), link[2].rstrip("/")
    return f"`{place}`" if text in (place, Path(place).name) else f"{link[1]} (`{place}`)"
