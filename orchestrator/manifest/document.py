"""Parses YAML text into nodes with positions, with bounds on size and depth, without aliases and tags."""

from pathlib import Path
from typing import Any, Final

import yaml

from orchestrator.errors import UsageError
from orchestrator.manifest.problems import ManifestError, Problem

MAX_FILE_BYTES: Final = 1024 * 1024
"""The largest campaign file. Chosen: 500 bytes for each of the models that it may name. A larger file
is most likely a model or a data set that was given by mistake, and is not read to its end."""

MAX_DEPTH: Final = 12
"""How deep lists and mappings may nest. The schema itself needs eight (the file, `models`, a model, `inputs`,
an input, `random`, `range`, a number). PyYAML composes by recursion, so a deeper file would exhaust Python's
stack."""

MAX_NODES: Final = 50_000
"""The most values in one file. Keys count too. Chosen: 25 for each of `schema.MAX_MODELS` models. It
bounds the memory and the time that a hostile file costs before anything in it is checked."""


class _Refused(yaml.MarkedYAMLError):
    """YAML that a campaign file may not use."""


class _BoundedLoader(yaml.SafeLoader):
    """Composes nodes one by one and refuses what makes a small file expand or recurse."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._count = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose the next node; checks it before it is built."""
        # Checked on the event, before the node: a node's children are composed before it is returned.
        event = self.peek_event()  # type: ignore[no-untyped-call]  # the stubs leave it open
        self._check(event)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def _check(self, event: Any) -> None:
        self._count += 1
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            text = "anchors and aliases (&name, *name) are not allowed; write the value out"
        elif event.tag is not None:
            text = f"tags ({event.tag}) are not allowed"
        elif self._depth >= MAX_DEPTH:
            text = f"nested deeper than {MAX_DEPTH} levels"
        elif self._count > MAX_NODES:
            text = f"more than {MAX_NODES} values in one file"
        else:
            return
        raise _Refused(problem=text, problem_mark=event.start_mark)


def read_bytes(path: Path) -> bytes:
    """Read the file's content. Raises `UsageError` if it is absent, unreadable or larger than 1 MiB."""
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(f"{path}: larger than {MAX_FILE_BYTES} bytes, the limit of a campaign file")
    return content


def compose(content: bytes, file: str) -> yaml.MappingNode:
    """Return the root mapping of a YAML document. Raises `ManifestError` with the position of the mistake."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start]
        column = error.start - (before.rfind(b"\n") + 1) + 1
        problem = Problem(before.count(b"\n") + 1, column, "not UTF-8 text; is this a YAML file?")
        raise ManifestError(file, [problem]) from error
    try:
        root = _BoundedLoader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        raise ManifestError(file, [_problem(error)]) from error
    except yaml.reader.ReaderError as error:
        before_text = text[: error.position]
        column = error.position - (before_text.rfind("\n") + 1) + 1
        text = f"character {error.character!r} is not allowed in YAML"
        raise ManifestError(file, [Problem(before_text.count("\n") + 1, column, text)]) from error
    if root is None:
        raise ManifestError(file, [Problem(1, 1, "the file is empty; see examples/models.yaml")])
    if not isinstance(root, yaml.MappingNode):
        found = "a list" if isinstance(root, yaml.SequenceNode) else "a single value"
        text = f"expected keys with values (version:, campaign:, models:, ...), found {found}"
        raise ManifestError(file, [Problem(1, 1, text)])
    return root


def _problem(error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    text = " ".join(part for part in (error.context, error.problem) if part)
    if not isinstance(error, _Refused):
        text = f"not valid YAML: {text}"
    return Problem(mark.line + 1 if mark else 1, mark.column + 1 if mark else 1, text)
