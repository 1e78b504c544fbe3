"""From a kernel's text to its syntax tree: the C preprocessor, then a parser of C."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pcpp
from pycparser import c_ast, c_parser
from pycparser.c_parser import ParseError

from runtime.delegates.gpu.backends.webgpu.wgsl.types import FOREIGN, TYPES
from runtime.delegates.gpu.layout.source import kernel_source
from runtime.errors import DelegateError

LOCAL = "_Thread_local"
"""The storage class as which `kernels/webgpu.cl` shows memory of a work-group."""

_C_TYPES = frozenset(
    {"void", "float", "int", "unsigned", "unsigned int", "char", "short", "long", "double", "_Bool"}
)
"""Types that the parser knows without a declaration."""


class OutsideSubsetError(DelegateError):
    """A kernel has what the portable subset of OpenCL C does not; the text names file, line and construct."""

    def __init__(self, coordinate: object, what: str) -> None:
        file, line = getattr(coordinate, "file", ""), getattr(coordinate, "line", 0)
        place = f"{file}:{line}" if file else "a kernel"
        super().__init__(f"gpu delegate: {place}: {what} is outside the portable subset of OpenCL C")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The functions of a text by name, and its further names of types."""

    functions: Mapping[str, c_ast.FuncDef]
    aliases: Mapping[str, c_ast.Node]


class _Preprocessor(pcpp.Preprocessor):  # type: ignore[misc]  # pcpp has no types
    """A preprocessor that collects errors instead of printing them."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []

    def on_error(self, file: str, line: int, message: str) -> None:
        self.faults.append(f"{file}:{line}: {message}")
        self.return_code += 1

    def on_directive_handle(self, directive: Any, toks: Any, ifpassthru: bool, precedingtoks: Any) -> Any:
        if directive.value == "error":
            self.on_error(directive.source, directive.lineno, "".join(token.value for token in toks))
            return True
        return super().on_directive_handle(directive, toks, ifpassthru, precedingtoks)


def preprocessed(text: str) -> str:
    """Preprocess a text; `#line` directives keep the names of files and their lines.

    Raises `DelegateError` with the first fault.
    """
    preprocessor = _Preprocessor()
    preprocessor.parse(kernel_source("webgpu.cl") + text, "kernel")
    written = io.StringIO()
    preprocessor.write(written)
    # Only now: pcpp expands macros while it writes.
    if preprocessor.faults:
        raise DelegateError(f"gpu delegate: the preprocessor says: {preprocessor.faults[0]}")
    return written.getvalue()


def parse(text: str) -> Parsed:
    """Return the functions of a kernel's text. Raises `DelegateError` with file and line if it is not C."""
    names = [name for name in (*TYPES, *FOREIGN) if name not in _C_TYPES]
    declared = f"typedef int {', '.join(names)};\n"
    try:
        tree: Any = c_parser.CParser().parse(declared + preprocessed(text), "kernel")
    except ParseError as error:
        raise DelegateError(
            f"gpu delegate: {error}: the portable subset of OpenCL C has no such text"
        ) from error
    functions = {node.decl.name: node for node in tree.ext if isinstance(node, c_ast.FuncDef)}
    # The first declarations are the ones that were put in front of the text.
    aliases = {node.name: node for node in tree.ext[len(names) :] if isinstance(node, c_ast.Typedef)}
    return Parsed(functions, aliases)
