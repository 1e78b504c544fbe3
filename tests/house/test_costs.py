"""The costs of one thing, as CONTRIBUTING.md lists them: a copy without its files and lines lacks it alone.

What can be removed by these files and lines alone was added by them alone. Two rows are shown by adding:
`tests/end_to_end/test_foreign_delegate.py` and `tests/orchestrator/results/test_metrics.py`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.needs import REPOSITORY

PACKAGES = ("orchestrator", "agent", "runtime", "templates")
OPENCL = "runtime/delegates/gpu"


@dataclass(frozen=True)
class Thing:
    """One thing of its kind: its files, its lines in ordered lists (file → pattern), and a program that lists
    what there is, as a JSON array.
    """

    files: tuple[str, ...]
    listing: str
    gone: frozenset[str]
    lines: Mapping[str, str] = field(default_factory=dict)


THINGS = {
    "operator on the CPU": Thing(
        ("runtime/ops/reduction/cumsum.py",),
        "from runtime.ops import SPECS; names = [opcode.name for opcode in SPECS]",
        frozenset({"CUMSUM"}),
    ),
    "the same on OpenCL": Thing(
        (f"{OPENCL}/lowering/reduction/softmax.py", f"{OPENCL}/kernels/reduction/softmax.cl"),
        "from runtime.delegates.gpu.lowering import families; names = [op.name for op in families()]",
        frozenset({"SOFTMAX", "LOG_SOFTMAX"}),
    ),
    "graph pass": Thing(
        (f"{OPENCL}/passes/fuse_swish.py",),
        "import runtime.delegates.gpu.passes as p; names = [n for n in vars(p) if n.startswith('fuse_')]",
        frozenset({"fuse_swish"}),
        {f"{OPENCL}/passes/__init__.py": r"\bfuse_swish\b"},
    ),
    "CLI verb": Thing(
        ("orchestrator/cli/validate.py",),
        "import orchestrator.cli as cli; cli.parser(); names = [verb.name for verb in cli.VERBS]",
        frozenset({"validate"}),
        {"orchestrator/cli/__init__.py": r"\bvalidate\b"},
    ),
    "page of the site": Thing(
        ("orchestrator/site/method_page.py", "templates/method.html.j2"),
        "from pathlib import Path; import tempfile; from orchestrator.site.build import build_site\n"
        "class Empty:\n    campaigns = staticmethod(lambda: [])\n"
        "out = Path(tempfile.mkdtemp()) / 'site'; build_site(Empty(), out)\n"
        "names = [page.name for page in out.glob('*.html')]",
        frozenset({"method.html"}),
        {"orchestrator/site/build.py": r"\bmethod_page\b"},
    ),
}
"""Row of CONTRIBUTING.md → an example of it."""


def listed(tree: Path, listing: str) -> frozenset[str]:
    """Return the names that the program finds when it runs on the packages of `tree`."""
    code = f"import json, sys; sys.path.insert(0, {str(tree)!r})\n{listing}\nprint(json.dumps(names))"
    ran = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return frozenset(json.loads(ran.stdout))


@pytest.mark.parametrize("row", THINGS)
def test_a_thing_is_its_files_and_its_lines(row, tmp_path):
    thing = THINGS[row]
    for package in PACKAGES:
        shutil.copytree(
            REPOSITORY / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    before = listed(tmp_path, thing.listing)
    for path in thing.files:
        (tmp_path / path).unlink()
    for path, pattern in thing.lines.items():
        kept = [
            line for line in (tmp_path / path).read_text().splitlines(True) if not re.search(pattern, line)
        ]
        (tmp_path / path).write_text("".join(kept))
    assert before - listed(tmp_path, thing.listing) == thing.gone


@pytest.mark.parametrize("row", THINGS)
def test_contributing_names_the_row(row):
    assert f"| {row} |" in (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
