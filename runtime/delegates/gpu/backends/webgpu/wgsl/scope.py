"""Writes a function's text, and tracks the names that are known at a place of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from runtime.delegates.gpu.backends.webgpu.wgsl.places import Variable


@dataclass(slots=True)
class Writer:
    """Lines of a function, indented by their blocks."""

    lines: list[str] = field(default_factory=list)
    depth: int = 1
    _made: int = 0

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append("    " * self.depth + text)

    def fresh(self) -> str:
        """Return a name that no variable of a kernel has: these end with an underscore."""
        self._made += 1
        return f"made_{self._made}"

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        """Lines of a block behind `head`."""
        self.line(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self.line(tail)

    @contextmanager
    def aside(self) -> Iterator[list[str]]:
        """Lines that are kept for a later place."""
        kept, self.lines = self.lines, []
        aside = self.lines
        try:
            yield aside
        finally:
            self.lines = kept


class Scope:
    """Names of variables, innermost block first."""

    def __init__(self) -> None:
        self._blocks: list[dict[str, Variable]] = [{}]

    def declare(self, name: str, variable: Variable) -> None:
        """Add a name to the innermost block."""
        self._blocks[-1][name] = variable

    def find(self, name: str) -> Variable | None:
        """Return the variable of this name; None if there is none."""
        return next((block[name] for block in reversed(self._blocks) if name in block), None)

    @contextmanager
    def block(self) -> Iterator[None]:
        """Open a block with names of its own."""
        self._blocks.append({})
        yield
        self._blocks.pop()


def named(name: str) -> str:
    """Return a kernel's name in WGSL, none of whose many reserved words ends with an underscore."""
    return f"{name}_"
