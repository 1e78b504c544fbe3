"""The costs of one thing, as CONTRIBUTING.md lists them: a copy without its files and lines lacks it alone.

What can be removed by these files and lines alone was added by them alone. Three rows are shown by adding: a
pass below, and `tests/end_to_end/test_foreign_delegate.py` and `tests/orchestrator/results/test_metrics.py`.
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
from tests.sweeps import sweep

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
        ("orchestrator/cli/refine.py",),
        "import orchestrator.cli as cli; cli.parser(); names = [verb.name for verb in cli.VERBS]",
        frozenset({"refine"}),
        {"orchestrator/cli/__init__.py": r"\brefine\b"},
    ),
    "page of the site": Thing(
        ("orchestrator/site/method_page.py", "templates/method.html.j2"),
        "from pathlib import Path; import tempfile; from orchestrator.site.build import build_site\n"
        "class Empty:\n    campaigns = staticmethod(lambda: [])\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    build_site(Empty(), Path(folder) / 'site')\n"
        "    names = [page.name for page in Path(folder, 'site').glob('*.html')]",
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


@pytest.mark.parametrize("row", sweep(THINGS, "operator on the CPU", "CLI verb"))
def test_a_thing_is_its_files_and_its_lines(row, tmp_path):
    thing = THINGS[row]
    for package in PACKAGES:
        shutil.copytree(REPOSITORY / package, tmp_path / package)  # with what Python has compiled of it
    before = listed(tmp_path, thing.listing)
    for path in thing.files:
        (tmp_path / path).unlink()
    for path, pattern in thing.lines.items():
        kept = [
            line for line in (tmp_path / path).read_text().splitlines(True) if not re.search(pattern, line)
        ]
        (tmp_path / path).write_text("".join(kept))
    assert before - listed(tmp_path, thing.listing) == thing.gone


PASS = {
    "agent/wire/passes.py": (
        (
            "class AskedPasses(bounded.Wire):",
            "class Pauses(bounded.Wire):\n    count: bounded.Count\n\n\nclass AskedPasses(bounded.Wire):",
        ),
        ("    steps: int | None", "    pauses: int | None = None\n    steps: int | None"),
        ("    steps: Steps | None", "    pauses: Pauses | None = None\n    steps: Steps | None"),
        ('    Pass("steps", "steps"),', '    Pass("steps", "steps"),\n    Pass("pauses", "pauses"),'),
    ),
    "orchestrator/manifest/measure_keys.py": (
        (
            "    steps: Annotated",
            '    pauses: int | None = key("Pauses that a further process makes.")\n    steps: Annotated',
        ),
    ),
    "orchestrator/results/passes.py": (
        (
            "PASS_RESULTS: Final = (",
            (
                "_PAUSES = (Metric('pauses.count', 'pauses', '1', 'none', 'latency', 'Pauses.',\n"
                "    measured('pauses', 'count'), text.count, own_line=False),)\n"
                "PASS_RESULTS: Final = (\n"
                "    PassResult('pauses', 'Pauses', lambda _, one: [('pauses', str(one.count))], _PAUSES),"
            ),
        ),
    ),
}
"""File → what is replaced in it where a pass is added."""

PASS_MODULE = """
from agent.attempt.files import PassReport
from agent.runner.passes.process_frame import FiguresPass
from agent.wire.passes import Pauses

class PausesReport(PassReport):
    name, who = "pauses", "the process that pauses"
    count: int = 0

def work(attempt, folder, tell):
    return PausesReport(count=attempt.job.plan.pauses)

PASS = FiguresPass(PausesReport, work, lambda found: {"pauses": Pauses(count=found.report.count)})
"""

PASS_SEEN = """
from types import SimpleNamespace as Has
from agent.runner.passes.process_frame import Found, pass_of
from agent.wire.plan import MeasurePlan
from orchestrator.farm.again.reproduction import measure_block
from orchestrator.manifest.measure_keys import Measure
from orchestrator.manifest.plans import plan
from orchestrator.results.export import csv_columns
from orchestrator.results.passes import PASS_RESULTS
asked = plan("quick", {"pauses": 3})
read = MeasurePlan.model_validate_json(asked.model_dump_json())
process = pass_of("pauses")
report = process.work(Has(job=Has(plan=read)), None, None)
figures = process.figures(Found(report, read.pauses, None, None, None))
cell = Has(measurement=Has(**figures), struck_out=False)
(told,) = [one.told(cell) for one in PASS_RESULTS if one.name == "pauses"]
names = [str(read.pauses), str(measure_block(read)["pauses"]), *told[0], process.report.name]
names += [name for name in (*Measure.model_fields, *csv_columns()) if "pauses" in name]
names += [] if "pauses" in MeasurePlan().model_dump_json() else ["older plans are as they were"]
"""


@pytest.mark.slow
def test_a_pass_is_a_module_and_lines_in_three_files(tmp_path):
    for package in PACKAGES:
        shutil.copytree(
            REPOSITORY / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    (tmp_path / "agent/runner/passes/pauses.py").write_text(PASS_MODULE)
    for path, replaced in PASS.items():
        text = (tmp_path / path).read_text()
        for old, new in replaced:
            assert text.count(old) == 1, (path, old)
            text = text.replace(old, new)
        (tmp_path / path).write_text(text)
    assert listed(tmp_path, PASS_SEEN) == {"3", "pauses", "pauses.count", "older plans are as they were"}


@pytest.mark.parametrize("row", [*THINGS, "pass after the timed blocks"])
def test_contributing_names_the_row(row):
    assert f"| {row} |" in (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
