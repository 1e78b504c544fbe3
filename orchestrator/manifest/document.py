"""Parses YAML text into nodes with positions, with bounds on size and depth, without aliases and tags.

pydantic names the location of an error by keys and indices, which lead to a node with line and column.
"""

from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from orchestrator.errors import UsageError
from orchestrator.manifest.problems import ManifestError, Problem, Problems
from orchestrator.manifest.values import Text

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
        # First, because an alias has no attribute `tag`.
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
    """Read the file's content, of one that is too large no more than tells so. Raises `UsageError` if it is
    absent or unreadable.
    """
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error


def compose(content: bytes, file: str) -> yaml.MappingNode:
    """Return the root mapping of a YAML document. Raises `ManifestError` with the position of the mistake,
    and `UsageError` if it is larger than 1 MiB.
    """
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(f"{file}: larger than {MAX_FILE_BYTES} bytes, the limit of a campaign file")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start]
        # Without a line end before it, `rfind` returns -1, and the line begins at 0.
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


_KEY = Text(numeric=True)


class Places:
    """The nodes of a file by location: keys of mappings, and indices of lists from 0."""

    def __init__(self, root: yaml.Node, problems: Problems) -> None:
        """Read all nodes; note keys that are no text, or are written twice."""
        self._root = root
        # By identity, which is unique as long as the tree below `_root` keeps its nodes alive.
        self._entries: dict[int, dict[str, tuple[yaml.Node, yaml.Node]]] = {}
        self.values = self._plain(root, problems)
        """Lists and mappings as Python's, with their scalars still as nodes."""

    def _plain(self, node: yaml.Node, problems: Problems) -> Any:
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(child, problems) for child in node.value]
        if not isinstance(node, yaml.MappingNode):
            return node
        entries = self._entries[id(node)] = {}
        for key, child in node.value:
            try:
                name = _KEY.read(key)
            except ValueError as error:
                problems.add(key, str(error))
                continue
            if name in entries:
                first = entries[name][0].start_mark.line + 1
                problems.add(key, f"key {name!r} is written twice; first on line {first}")
            else:
                entries[name] = key, child
        return {name: self._plain(child, problems) for name, (_, child) in entries.items()}

    def path(self, *location: int | str) -> list[yaml.Node]:
        """Return the nodes from the root to a location, as far as it exists; a key is before its value."""
        path = [self._root]
        for part in location:
            if isinstance(path[-1], yaml.SequenceNode) and isinstance(part, int):
                path.append(path[-1].value[part])
            else:
                path += self._entries.get(id(path[-1]), {}).get(str(part), ())
        return path

    def note(self, error: ValidationError, problems: Problems) -> None:
        """Note each mistake that pydantic found, in our words and at its place in the file."""
        # Of one mapping, a misspelt key goes before the missing one that was meant.
        for one in sorted(error.errors(include_url=False), key=lambda one: one["type"] == "missing"):
            path = self.path(*one["loc"])
            if one["type"] == "missing":
                problems.add(path[-1], f"missing key {one['loc'][-1]!r}")
            elif one["type"] == "extra_forbidden":
                # The value is an `Unknown`, whose sentence is about the key before it.
                problems.add(path[-2], one["input"].text)
            else:
                problems.add(path[-2] if one["loc"][-1:] == ("[key]",) else path[-1], one["msg"])

    def drop_mistakes(self, error: ValidationError) -> None:
        """Take each part with a mistake out of the file, so that the rest of it can be looked at."""
        paths = [self.path(*one["loc"]) for one in error.errors(include_url=False, include_input=False)]
        # Of a missing key the path ends with the mapping that lacks it, which goes as a whole.
        dropped = {id(path[-1]) for path in paths}
        for parent in {id(node): node for path in paths for node in path[:-1]}.values():
            if isinstance(parent, yaml.SequenceNode):
                parent.value = [child for child in parent.value if id(child) not in dropped]
            elif isinstance(parent, yaml.MappingNode):
                parent.value = [entry for entry in parent.value if id(entry[1]) not in dropped]
