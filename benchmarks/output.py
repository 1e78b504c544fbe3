"""The shared parts of benchmarks: this repository's models, options, tables, and the files of results/."""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from runtime.model.skeleton import restore_skeleton
from tests import reports
from tests.tree import Tree

REPOSITORY: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = REPOSITORY / "benchmarks/results"
FOLDERS: Final = (REPOSITORY / "examples/zoo", REPOSITORY / "benchmarks/skeletons")


def restored(name: str) -> bytes:
    """Restore the model of this name: `examples/zoo`, and variants beside it.

    Raises `FileNotFoundError` with the folders that lack it.
    """
    for folder in FOLDERS:
        path = folder / f"{name}.skel"
        if path.exists():
            return bytes(restore_skeleton(path.read_bytes()))
    raise FileNotFoundError(f"no {name}.skel in {', '.join(map(str, FOLDERS))}")


def parser(text: str | None, out: Path | None = None, *, has_out: bool = True) -> argparse.ArgumentParser:
    """Return a parser with this help and, unless a benchmark always writes the same file, `--out`."""
    # No abbreviations: they would take options that are passed on to `farm submit`.
    made = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    if has_out:
        made.add_argument("--out", type=Path, default=out, help="JSON file to write")
    return made


def table(heads: Sequence[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    return [_line(heads), "|---" * len(heads) + "|", *map(_line, rows)]


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def environment_lines(report: Mapping[str, Any]) -> list[str]:
    """Return the end of a page: the environment in which its figures were measured."""
    return ["", "Environment:", "", *(f"- `{key}`: {value}" for key, value in report["environment"].items())]


def write_figures(out: Path | None, figures: Any) -> None:
    """Write figures as JSON; nothing without a file."""
    if out is not None:
        out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def write_report(out: Path, figures: Any, lines: Iterable[str], of: Tree, status: int | None = 0) -> None:
    """Write figures as JSON, and beside them a page in Markdown that names the tree of its run."""
    write_figures(out, figures)
    reports.write_report(out.with_suffix(".md"), "\n".join(lines) + "\n", of, status)


class FailedError(Exception):
    """A process of a benchmark ended without figures; the text says why."""


class LateError(FailedError):
    """It did not end within its time."""


def in_a_process(
    module: str, *arguments: str, limit_s: float | None = None, prefix: Sequence[str] = (), **more: Any
) -> dict[str, Any]:
    """Run a module and return the JSON object of its last line, or none. Raises `FailedError`."""
    said = said_by(module, *arguments, limit_s=limit_s, prefix=prefix, **more)
    return dict(json.loads((said.splitlines() or ["{}"])[-1]))


def said_by(
    module: str, *arguments: str, limit_s: float | None = None, prefix: Sequence[str] = (), **more: Any
) -> str:
    """Run a module of this folder and return what it printed. Raises `FailedError`."""
    command = [*prefix, sys.executable, "-m", f"benchmarks.{module}", *arguments]
    try:
        ran = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, timeout=limit_s, check=False, **more
        )
    except subprocess.TimeoutExpired:
        raise LateError(f"no end within {limit_s:g} s") from None
    if ran.returncode:
        # A traceback ends with the error.
        said = ran.stderr.strip().splitlines() or ["nothing"]
        raise FailedError(f"exit {ran.returncode}: {said[-1][:300]}")
    return str(ran.stdout)
