"""Every command of the manual is run on a farm home of its own, in the order of the pages, and does its work.

What no test can run here stands in `ELSEWHERE` with the reason, or with the test that runs it. A command that
is new on a page is run, or fails until it stands there. A verb without its arguments in a sentence is a name:
it and its options must exist.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests import needs
from tests.end_to_end.conftest import Campaign
from tests.end_to_end.manual import OURS, Command, commands, verb_of
from tests.needs import REPOSITORY
from tests.orchestrator.cli.models import unary_model
from tests.orchestrator.results.test_imports import AI_HUB, LITERT, LOG
from tests.runtime.delegates.peers.small_models import conv_model
from tests.runtime.models import Builder
from tests.services.forks import run
from tests.services.redis import RedisServer

ELSEWHERE = {
    "make *": "sets up, builds, tests or measures for minutes",
    "apt-get *": "installs packages of the machine",
    "pip *": "installs from the registry",
    "redis-server /etc/*": "tests/house/test_lab_docs.py",
    "umask *": "tests/house/test_lab_docs.py",
    "openssl *": "tests/house/test_lab_docs.py",
    "printf *": "tests/house/test_lab_docs.py",
    "createuser *": "is for the account of PostgreSQL; it asks for a password",
    "createdb *": "is for the account of PostgreSQL",
    "read -rs *": "waits for a terminal",
    "export *": "sets variables of the reader's shell",
    "systemd-analyze *": "tests/agent/test_systemd_unit.py",
    "farm lab serve": "tests/orchestrator/endpoint/http_lab.py",
    "farm-agent start*": "tests/orchestrator/endpoint/http_lab.py",
    "farm-agent enrol *": "tests/orchestrator/trust/test_first_start.py",
    "* farm-agent enrol *": "tests/orchestrator/trust/test_first_start.py",
    "farm-agent check": "tests/agent/runner/test_probe.py",
    "farm-agent tuning *": "changes the clocks of this machine, as root",
    "farm --install-completion": "writes to the shell's own settings",
    "farm devices noise *": "tests/orchestrator/cli/test_noise.py",
    "farm lab agents remove *": "tests/orchestrator/endpoint/test_lab_operations.py",
    "farm model prime*": "compiles for minutes: tests/runtime/delegates/gpu",
    "farm site build --out /var/www/farm": "writes to a folder of the system",
    "farm site check public": "tests/orchestrator/cli/test_submit.py",
    "farm site serve": "runs until Ctrl-C: tests/orchestrator/site/test_serve.py",
    "*pytest *": "runs tests",
    "python -m tests.*": "checks or attacks for minutes",
    "python -m benchmarks.*": "measures or judges for hours",
    "python -m orchestrator.results.metrics_table *": "tests/orchestrator/results/test_metrics.py",
    "farm show CELL --answers": "tests/end_to_end/test_labelled_campaign.py",
    "farm show iris gpu --profile text": "tests/orchestrator/cli/test_submit.py",
    "farm tune *": "tests/orchestrator/cli/test_tune.py",
    "farm model eval *": "tests/runtime/tools/test_model_eval.py",
    "python -m delegate_farm.litert_tools": "is the name of a package, not what one types",
    "python -m delegate_farm.litert_tools *_run_eval *": "tests/runtime/evaluation/test_run_eval.py",
    "python -m delegate_farm.litert_tools benchmark_model_performance_options *": (
        "tests/runtime/evaluation/test_performance_options.py"
    ),
    "python -m delegate_farm.litert_tools benchmark_model *": (
        "tests/runtime/evaluation/test_benchmark_model.py"
    ),
    "python -m delegate_farm.litert_tools install *": "tests/runtime/evaluation/test_benchmark_model.py",
    "python -m delegate_farm.litert_tools inference_diff*": "tests/runtime/tools/test_model_diff.py",
    "python -m runtime.tools.operator_table *": "writes a page of this checkout, which a test compares",
}
"""What is not run here, and why; where a file stands, it runs the command or what that does."""

LONG = (
    "farm submit my.tflite*",
    "farm repro CELL --run",
    "farm model profile *",
    "farm compare demo~1 demo --rerun*",
    "farm compare A B --rerun*",
    "farm refine *",
    "farm submit models.yaml --dry-run --explain",
    "farm submit tokens.tflite *",
    "farm submit three.yaml",
    "farm results three *",
    "farm submit labelled.yaml",
    "farm model bench *",
    "farm model bisect *",
    "farm model diff *",
    "farm model info FILE",
    "farm model plan FILE *",
    "farm model plan my.tflite --dot *",
    "farm site build --*",
    "farm-agent probe",
)
"""What measures, compiles or builds for a second or longer: run by `make test-exhaustive`."""

REPORTS = {"report.json": LITERT, "profile.json": AI_HUB}
"""Files of other tools, whose commands the manual has; `bench.log` is the third."""

MEANT = {
    "farm results nightly *": "farm results demo --metric init --only '*'",
    "farm submit FILE": "farm submit --check models.yaml",
    "farm submit --label driver=555": "farm submit models.yaml --label driver=555",
    "farm compare label:driver=550 *": "farm compare label:driver=555 label:driver=555",
    "farm lab agents drain NAME": "farm lab agents drain embedded",
    "farm lab agents enrol NAME --write DIR": "farm lab agents enrol rack-4 --write rack-4",
    "farm lab agents rotate NAME": "farm lab agents rotate rack-4",
    "farm lab agents revoke NAME": "farm lab agents revoke rack-4",
    "farm model skeleton strip FILE OUT*": "farm model skeleton strip my.tflite my.skel",
    "farm model skeleton restore FILE OUT": "farm model skeleton restore my.skel again.tflite",
}
"""What stands for a command whose placeholders the words of `PLACEHOLDERS` cannot replace."""

NAMES = (
    "farm db prune", "farm db prune --json", "farm devices release", "farm submit --force",
    "farm submit --dry-run", "farm submit --explain", "farm submit --notify URL", "farm submit --check",
    "farm submit --check --json",
    "farm submit … --delegate openvino",
)  # fmt: skip
"""What a sentence names, though a parser would accept it: nothing says what is to be done with what."""

PLACEHOLDERS = {
    "CAMPAIGN": "demo", "REF": "demo", "MONDAY": "demo~1", "TUESDAY": "demo", "A": "demo~1", "B": "demo",
    "FILE": "my.tflite", "NAME": "host-cpu", "DEVICE": "host-cpu", "gpu-0": "host-cpu", "N": "5",
    "TEXT": "a test", "COMMAND": "true",
}  # fmt: skip

ENDS = {
    "farm doctor": {0, 1},
    "farm compare demo~1 demo --fail-on regression": {0, 3, 5},
    "farm submit my.tflite --budget 'p50<=5ms'": {0, 3, 5},
    "farm submit my.tflite --budget 'p50<=5ms' --junit budget.xml": {0, 3, 5},
}
"""Exit codes of commands whose verdict depends on the machine; all others end with 0."""

OF_TWO_SETTINGS = """\
version: 1
campaign: demo
defaults:
  measure: {{warmup: {{runs: 1, min_seconds: 0}}, blocks: 1, rounds: 3, slice: {{seconds: 0.01}}}}
models:
  - {{id: good, source: a.tflite}}
delegates:
  cpu: {{kind: cpu, threads: {threads}}}
  litert: {{kind: litert}}
baseline: {{delegate: litert}}
"""
"""A run whose settings are not those of the next: a rerun of equal settings has nothing to measure."""

ALL = list(commands())


@dataclass(frozen=True)
class Reader:
    """A folder with the files that the manual speaks of, and a farm home with two runs of a campaign."""

    folder: Path
    model: str
    cell: str
    broker: str

    def run(self, command: Command) -> subprocess.CompletedProcess[str]:
        meant = next((text for found, text in MEANT.items() if fnmatchcase(command.text, found)), None)
        words = command.words if meant is None else shlex.split(meant)
        here = {**PLACEHOLDERS, "CELL": self.cell, "MODEL": self.model, "iris": self.model}
        words = [here.get(word, word) for word in words]
        measures_again = "--rerun" in words or words[1] == "refine"
        home = self.with_two_settings if measures_again else self.folder / "home"
        environment = os.environ | {"FARM_HOME": str(home), "NO_COLOR": "1"}
        if words[1:3] == ["lab", "users"] or words[1:4] in (
            ["lab", "agents", verb] for verb in ("enrol", "rotate", "revoke", "acl")
        ):
            environment["FARM_BROKER_URL"] = self.broker
            if "--write" not in words:
                environment["FARM_ENDPOINT"] = "https://lab.example.org:8460"
        return run(words[0], *words[1:], cwd=self.folder, env=environment)

    @cached_property
    def with_two_settings(self) -> Path:
        """A farm home with two runs of a campaign that differ in a setting; its one model is done in no time,
        so that whatever is measured again there takes seconds.
        """
        home, manifest = self.folder / "settings", self.folder / "settings.yaml"
        for threads in (1, 2):
            manifest.write_text(OF_TWO_SETTINGS.format(threads=threads), encoding="utf-8")
            environment = os.environ | {"FARM_HOME": str(home)}
            done = run("farm", "submit", manifest.name, cwd=self.folder, env=environment)
            assert done.returncode == 0, done.stderr
        return home


def write_files(folder: Path) -> None:
    """Write the files that the manual's commands read beside the campaign's own."""
    for name, text in (("bench.log", LOG), *((f, json.dumps(j)) for f, j in REPORTS.items())):
        (folder / name).write_text(text, encoding="utf-8")
    everyday = (REPOSITORY / "docs/everyday.md").read_text(encoding="utf-8")
    for name, text in re.findall(r"```(?:yaml|toml)\n# (\S+)\n(.*?)```", everyday, re.DOTALL):
        (folder / name).write_text(text, encoding="utf-8")
    for name in "abc":
        (folder / f"{name}.tflite").write_bytes(unary_model())
    (folder / "tokens.tflite").write_bytes(rows_of_a_table())
    (folder / "digits.tflite").write_bytes(unary_model(size=10))
    digits = np.tile(np.eye(10, dtype=np.float32)[:, None], (10, 1, 1))
    np.savez(folder / "digits.npz", labels=np.tile(np.arange(10), 10), inputs=digits)


def rows_of_a_table() -> bytes:
    """`input_ids` int32 [1, 8] → the rows of a table of 30 x 16."""
    build = Builder()
    ids = build.input(np.int32, (1, 8), name="input_ids")
    table = build.constant(np.random.default_rng(3).standard_normal((30, 16)).astype(np.float32))
    rows = build.tensor(np.float32)
    build.operator(Op.GATHER, [table, ids], [rows], {"axis": 0})
    return build.write([rows])


@pytest.fixture(scope="module")
def reader(
    campaign: Campaign, tmp_path_factory: pytest.TempPathFactory, short_folder: Path
) -> Iterator[Reader]:
    needs.redis_server()
    folder = tmp_path_factory.mktemp("reader")
    shutil.copytree(campaign.home, folder / "home", ignore=shutil.ignore_patterns("*.sock"))
    for path in campaign.manifest.parent.glob("*.*"):
        shutil.copy(path, folder)
    write_files(folder)
    cells = [cell for cell in campaign.results if cell["delegate"] == "gpu" and cell["status"] == "done"]
    (folder / "my.tflite").write_bytes(conv_model())
    with_keys = short_folder / "manual"
    with_keys.mkdir()
    server = RedisServer(with_keys).start()
    yield Reader(folder, cells[-1]["model"], cells[-1]["cell_id"], server.socket_url)
    server.kill()


def elsewhere(command: Command) -> str | None:
    """Why a command is not run here; None where it is."""
    return next((why for text, why in ELSEWHERE.items() if fnmatchcase(command.text, text)), None)


def is_name(command: Command) -> bool:
    """Whether a sentence names a verb, or an option of it, rather than saying what to type."""
    if command.is_block or command.text in MEANT:
        return False
    verb = verb_of(command.words)
    bare = not verb.arguments and verb.takes_arguments
    return command.text in NAMES or verb.is_group or bare or not verb.is_whole()


OF_OURS = [command for command in ALL if command.words[0] in OURS]
RUN = [command for command in OF_OURS if elsewhere(command) is None and not is_name(command)]


def is_long(command: Command) -> bool:
    return any(fnmatchcase(command.text, text) for text in LONG)


@pytest.mark.parametrize(
    "command",
    [pytest.param(c, marks=pytest.mark.exhaustive if is_long(c) else ()) for c in RUN],
    ids=str,
)
def test_it_does_what_the_manual_says(reader, command):
    done = reader.run(command)
    assert done.returncode in ENDS.get(command.text, {0}), f"{command.page}: {done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr


def test_every_other_command_is_accounted_for():
    others = [command for command in ALL if command not in OF_OURS]
    assert [f"{c.page}: {c}" for c in others if elsewhere(c) is None] == []
    used = {text for text in ELSEWHERE for command in ALL if fnmatchcase(command.text, text)}
    assert set(ELSEWHERE) - used == set(), "no page has such a command"
    files = {why.split(": ")[-1] for why in ELSEWHERE.values() if "tests/" in why}
    assert sorted(path for path in files if not (REPOSITORY / path).exists()) == []


@pytest.mark.parametrize("command", [c for c in OF_OURS if c not in RUN], ids=str)
def test_what_is_named_or_run_elsewhere_exists(command, monkeypatch):
    monkeypatch.setenv("FARM_ENROL_TOKEN", "as the page says, from the environment")
    verb = verb_of([word for word in command.words if "=" not in word or word.startswith("-")])
    assert verb.unknown_options() == []
    if not is_name(command) and not verb.is_group:
        assert verb.is_whole()
