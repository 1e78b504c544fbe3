"""`farm refine` and `time_budget` on one machine: a real agent, whose runner only claims to measure."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from orchestrator import api
from orchestrator.cli import run
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.farm import Farm
from orchestrator.farm.again.refining import Refined
from orchestrator.farm.further_blocks import FurtherBlocks
from orchestrator.farm.remote import farm as remote
from orchestrator.farm.submit.submission import Submitted
from orchestrator.results.records import AttemptRecord, CellRecord
from tests.orchestrator.cli import claiming_agent
from tests.orchestrator.cli.conftest import Shell
from tests.orchestrator.cli.models import unary_model
from tests.orchestrator.results.test_vagueness import of as vague_or_decided
from tests.sweeps import slowly

CAMPAIGN = """\
version: 1
campaign: small
models: [{id: net, source: net.tflite}]
delegates: {cpu: {kind: cpu, threads: 1}}
"""

RUNNER = """
import math, time
from tests.orchestrator.cli.claiming_runner import HERE, earlier_blocks, end
(HERE / "started").touch()
while (HERE / "slow").exists():
    time.sleep(0.05)
spread = [0.01 * (n % 3) for n in range(9)] if earlier_blocks() else (0.3, 0.0, -0.3)
end([1e6 * math.exp(x) for x in spread])
"""


class OneFarm:
    """A farm whose command line this process runs. `answer`: the file with what the agent's probe says."""

    def __init__(self, folder: Path, answer: Path) -> None:
        self.folder = folder
        self.answer = answer
        self.runner = folder / "runner.py"
        self.runner.write_text(RUNNER)
        (folder / "net.tflite").write_bytes(unary_model())
        (folder / "models.yaml").write_text(CAMPAIGN)

    def open(self, home: FarmHome, _lab: LabConfig | None = None) -> Farm:
        paths = ("--state", str(home.agent), "--store", str(home.store))
        agent = (sys.executable, "-P", "-m", claiming_agent.__name__, str(self.runner), str(self.answer))
        return Farm.open(home, command=[*agent, *paths])

    def cell(self) -> CellRecord:
        with self.open(FarmHome.from_environment()) as farm:
            (found,) = farm.reading.cells("small")
        return found

    def blocks(self) -> int:
        measured = self.cell().measurement
        return 0 if measured is None else len(measured.blocks)


@pytest.fixture
def farm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probe_answer: Path, forked_agents: None
) -> Iterator[OneFarm]:
    made = OneFarm(tmp_path, probe_answer)
    monkeypatch.setenv("FARM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for module in (remote, api):
        monkeypatch.setattr(module, "opened", made.open)
    before = os.umask(0o077)
    yield made
    os.umask(before)


def test_blocks_are_added_until_nothing_is_vague(farm: OneFarm, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["submit", "models.yaml"]) == 0
    assert farm.blocks() == 3
    capsys.readouterr()
    assert run(["refine", "small", "-v"]) == 0
    shown = capsys.readouterr()
    assert "adding blocks to 1 cell, the vaguest first" in shown.err
    assert "net on cpu@host-cpu: refinement: blocks are added to its result\n" in shown.err
    assert "retry" not in shown.err
    assert run(["status", "--watch", "small", "-v"]) == 0
    assert capsys.readouterr().out == shown.out, "every cell, as the table of `-v` has it"
    after = farm.cell()
    assert (farm.blocks(), after.status, after.kept, len(after.attempts)) == (12, "done", "", 2)
    assert run(["refine", "small"]) == 0
    assert capsys.readouterr().out == "nothing to refine: every ratio is decided\n"
    assert run(["submit", "models.yaml"]) == 0
    assert "1 cell: 1 reused" in capsys.readouterr().err, "the pooled result is one of the same series"


@pytest.mark.slow
def test_what_a_campaign_s_time_leaves_goes_to_its_vaguest_cells(farm: OneFarm) -> None:
    (farm.folder / "models.yaml").write_text(f"{CAMPAIGN}time_budget: 10m\n")
    assert run(["submit", "models.yaml"]) == 0
    assert farm.blocks() == 12


def test_verdicts_of_one_attempt_get_blocks_of_another_time_before_what_is_vague() -> None:
    attempt = AttemptRecord("a", 1, "host-cpu", "done", None, None, None)
    once = replace(vague_or_decided("decided", 0.02, ratio=1.2), attempts=(attempt,))
    twice = replace(once, cell_id="twice", attempts=(attempt, attempt))
    asked: list[tuple[str, ...]] = []

    def refine(_ref: str, _target: float | None, seconds: float, cells: tuple[str, ...]) -> Refined:
        assert 0.0 < seconds <= 60.0
        asked.append(cells)
        return Refined(Submitted("c", 0), (), {}, 0.0)

    farm: Any = SimpleNamespace(
        reading=SimpleNamespace(
            campaign=lambda _: SimpleNamespace(baseline="cpu"), cells=lambda _: [once, twice]
        ),
        wait=lambda _: lambda read: read(),
        refinements=SimpleNamespace(refine=refine),
    )
    notes: list[str] = []
    FurtherBlocks(farm, "c", notes.append, lambda _: None).spend(60.0)
    assert asked == [(once.cell_id,), ()]
    assert notes == ["blocks of another time for 1 verdict of one attempt"]
    FurtherBlocks(farm, "c", notes.append, lambda _: None).spend(0.0)
    assert len(asked) == 2, "no time was left"


def test_no_time_is_left_where_the_plans_took_all_of_it(farm: OneFarm) -> None:
    (farm.folder / "models.yaml").write_text(f"{CAMPAIGN}time_budget: 1ms\n")
    assert run(["submit", "models.yaml"]) == 0
    assert farm.blocks() == 3


@pytest.mark.parametrize(
    ("limit_ms", "undecided", "blocks", "code", "raised"),
    [
        slowly(
            0.1, "fail", 3, 3, r"p50 1 ms \[.* ms to .* ms\], limit 0.1 ms: exceeded; details: farm show "
        ),
        slowly(0.1, "warn", 3, 3, "exceeded"),
        slowly(10.0, "fail", 3, 0, None),
        slowly(0.95, "fail", 12, 3, "exceeded"),
        slowly(1.3, "fail", 12, 0, None),
        (1.005, "fail", 12, 5, r"limit 1.005 ms: undecided; measure longer .*standard.* or move the limit"),
        slowly(1.005, "warn", 12, 0, "limit 1.005 ms: undecided"),
    ],
)
def test_an_open_limit_gets_blocks_once_and_command_line_and_python_agree(
    farm: OneFarm,
    monkeypatch: pytest.MonkeyPatch,
    limit_ms: float,
    undecided: Literal["fail", "warn"],
    blocks: int,
    code: int,
    raised: str | None,
) -> None:
    asked = ["--budget", f"p50<={limit_ms}ms", "--undecided", undecided]
    assert run(["submit", "models.yaml", *asked]) == code
    assert farm.blocks() == blocks
    monkeypatch.setenv("FARM_HOME", str(farm.folder / "another"))

    def assert_latency() -> CellRecord:
        return api.assert_latency(
            "net.tflite", "cpu", max_ms=limit_ms, undecided=undecided, how=api.How(options={"threads": 1})
        )

    if raised is None:
        measured = assert_latency().measurement
        assert measured is not None
        assert len(measured.blocks) == blocks
        assert api.assert_accuracy("net.tflite", "cpu", how=api.How(options={"threads": 1})).measurement
    elif code == 0:
        with pytest.warns(UserWarning, match=raised):
            assert_latency()
    else:
        with pytest.raises(AssertionError, match=raised) as error:
            assert_latency()
        assert isinstance(error.value, api.UndecidedError) is (code == 5)


@pytest.mark.slow
def test_ctrl_c_keeps_every_result_and_refine_goes_on_afterwards(
    farm: OneFarm, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["submit", "models.yaml"]) == 0
    before = farm.cell()
    (farm.folder / "started").unlink()
    (farm.folder / "slow").touch()
    seen: list[CellRecord] = []

    def stop() -> None:
        while not (farm.folder / "started").exists():
            time.sleep(0.05)
        seen.append(farm.cell())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=stop, daemon=True).start()
    assert run(["refine", "small"]) == 130
    assert "stopped; every result is kept. Go on with: farm refine" in capsys.readouterr().err
    (during,) = seen
    assert (during.measurement, during.status, during.kept) == (before.measurement, "done", "measuring again")
    after = farm.cell()
    assert (after.measurement, after.status, after.kept) == (before.measurement, "done", "")
    (farm.folder / "slow").unlink()
    assert run(["refine", "small"]) == 0
    assert farm.blocks() == 12


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--until", "0%"], "a target is from 0.1% to below 100%, such as 3%; found 0"),
        (["--until", "0.05%"], "a target is from 0.1%"),
        (["--until", "three"], "--until three: expected a share such as 3% or 0.03"),
        (["--for", "soon"], "--for soon: expected seconds, minutes, hours or days"),
        (["--for", "0s"], "there is no time for more blocks"),
        ([], "no campaign 'nothing'"),
    ],
)
def test_bad_input_is_one_clear_error(shell: Shell, arguments: list[str], words: str) -> None:
    ran = shell.farm("refine", "nothing", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
