"""Places of a composed YAML file: from nodes to plain values, and from pydantic's errors back to lines.

pydantic names the location of an error by keys and indices, which lead to a node with line and column.
"""

from typing import Any

import yaml
from pydantic import ValidationError

from orchestrator.manifest.problems import Problems
from orchestrator.manifest.values import Text

_KEY = Text(numeric=True)


class Places:
    """The nodes of a file by location: keys of mappings, and indices of lists from 0."""

    def __init__(self, root: yaml.Node, problems: Problems) -> None:
        """Read all nodes; note keys that are no text, or are written twice."""
        self._root = root
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
                problems.add(path[-2], one["input"].text)
            else:
                problems.add(path[-2] if one["loc"][-1:] == ("[key]",) else path[-1], one["msg"])

    def drop_mistakes(self, error: ValidationError) -> None:
        """Take each part with a mistake out of the file, so that the rest of it can be looked at."""
        paths = [self.path(*one["loc"]) for one in error.errors(include_url=False, include_input=False)]
        dropped = {id(path[-1]) for path in paths}
        for parent in {id(node): node for path in paths for node in path[:-1]}.values():
            if isinstance(parent, yaml.SequenceNode):
                parent.value = [child for child in parent.value if id(child) not in dropped]
            elif isinstance(parent, yaml.MappingNode):
                parent.value = [entry for entry in parent.value if id(entry[1]) not in dropped]
