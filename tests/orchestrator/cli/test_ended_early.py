"""Ctrl-C and `farm cancel` keep the blocks that an attempt has finished, in every table and page."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable

import pytest

from agent.wire.measurement import Measurement
from orchestrator.cli import run
from orchestrator.config.home import FarmHome
from orchestrator.results.records import CellRecord
from tests.orchestrator.cli.test_refine import OneFarm, farm  # noqa: F401  # a fixture

RUNNER = """
import os, signal, time
from tests.orchestrator.cli.claiming_runner import FOLDER, HERE, earlier_blocks, end

def claim(count, stopped):
    p50 = 1e6 if stopped == "target" else 1.25e6
    end([p50 * (1 + n / 100) for n in range(count)], stopped)

def stop(*_):
    if (FOLDER / "cancelled").exists() and (count := int((HERE / "finished").read_text())):
        claim(count, "cancelled")
    os._exit(0)

if (HERE / "finished").exists():
    signal.signal(signal.SIGTERM, stop)
    (HERE / "started").touch()
    time.sleep(600)
claim(max(1, 4 - len(earlier_blocks())), "target")
"""
"""Ends with four blocks, or, where it is stopped, with as many of its own as the file `finished` says."""

WHOLE, PART = 1.0, 1.25
"""p50 in ms of what it measures to the end, and of what it measures until it is stopped."""


FINISHED = [0, pytest.param(1, marks=pytest.mark.exhaustive), 2]
"""Blocks that an attempt has finished when it is stopped."""


@pytest.fixture
def stopped(farm: OneFarm) -> OneFarm:  # noqa: F811
    farm.runner.write_text(RUNNER)
    return farm


def stop_when_started(farm: OneFarm, finished: int, how: Callable[[OneFarm], None]) -> None:  # noqa: F811
    """Let the next attempt finish so many blocks, and then stop it."""
    (farm.folder / "finished").write_text(str(finished))
    (farm.folder / "started").unlink(missing_ok=True)

    def stop() -> None:
        while not (farm.folder / "started").exists():
            time.sleep(0.02)
        how(farm)

    threading.Thread(target=stop, daemon=True).start()


def ctrl_c(_farm: OneFarm) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def cancel(farm: OneFarm) -> None:  # noqa: F811
    with farm.open(FarmHome.from_environment()) as opened:
        opened.steering.cancel("small")


def measured(cell: CellRecord) -> Measurement:
    assert cell.measurement is not None
    return cell.measurement


def shown_everywhere(farm: OneFarm, capsys: pytest.CaptureFixture[str], p50: float) -> None:  # noqa: F811
    """Every reader of results has this figure."""
    capsys.readouterr()
    run(["results", "--campaign", "small", "--json"])
    (cell,) = json.loads(capsys.readouterr().out)
    assert cell["latency_ms"]["p50"] == pytest.approx(p50, rel=0.03)
    run(["compare", "small~1", "small", "--json"])
    (change,) = json.loads(capsys.readouterr().out)["changes"]
    assert change["ratio"]["median"] == pytest.approx(WHOLE / p50, rel=0.03), change
    assert run(["site", "build", "--out", str(farm.folder / "site")]) == 0
    pages = [path.read_text() for path in (farm.folder / "site").rglob("*.html")]
    sorted_by = (found for page in pages for found in re.findall(r'data-sort="([0-9.]+)"', page))
    assert any(float(found) == pytest.approx(p50, rel=0.03) for found in sorted_by)


@pytest.mark.slow
@pytest.mark.parametrize("finished", FINISHED)
def test_ctrl_c_keeps_finished_blocks_and_the_same_command_goes_on_from_them(
    stopped: OneFarm, capsys: pytest.CaptureFixture[str], finished: int
) -> None:
    assert run(["submit", "models.yaml"]) == 0
    stop_when_started(stopped, finished, ctrl_c)
    assert run(["submit", "models.yaml", "--force"]) == 130
    assert "Continue with:" in capsys.readouterr().err
    cell = stopped.cell()
    assert (cell.status, cell.kept) == ("done", "measuring again")
    assert len(measured(cell).blocks) == (finished or 4), "without a new one the earlier result stands"
    shown_everywhere(stopped, capsys, PART if finished else WHOLE)
    (stopped.folder / "finished").unlink()
    assert run(["submit", "models.yaml", "--force"]) == 0
    blocks = measured(stopped.cell()).blocks
    assert [block.p50_ns > 1.2e6 for block in blocks] == [True] * finished + [False] * (4 - finished)
    assert (stopped.cell().status, stopped.cell().kept) == ("done", "")


@pytest.mark.slow
@pytest.mark.parametrize("finished", FINISHED)
def test_a_cancelled_attempt_keeps_finished_blocks_and_the_next_campaign_goes_on_from_them(
    stopped: OneFarm, capsys: pytest.CaptureFixture[str], finished: int
) -> None:
    assert run(["submit", "models.yaml"]) == 0
    stop_when_started(stopped, finished, cancel)
    run(["submit", "models.yaml", "--force"])
    cell = stopped.cell()
    assert (cell.state, cell.status, cell.kept) == ("done", "done", ""), "it is not queued again"
    assert len(measured(cell).blocks) == (finished or 4)
    shown_everywhere(stopped, capsys, PART if finished else WHOLE)
    (stopped.folder / "finished").unlink()
    capsys.readouterr()
    assert run(["submit", "models.yaml"]) == 0
    assert ("1 reused" in capsys.readouterr().err) == (not finished)
    blocks = measured(stopped.cell()).blocks
    assert [block.p50_ns > 1.2e6 for block in blocks] == [True] * finished + [False] * (4 - finished)


def test_a_first_measurement_that_is_cancelled_with_nothing_finished_is_cancelled(stopped: OneFarm) -> None:
    stop_when_started(stopped, 0, cancel)
    assert run(["submit", "models.yaml"]) == 1
    assert (stopped.cell().state, stopped.cell().measurement) == ("cancelled", None)


@pytest.mark.slow
def test_refine_goes_on_from_a_result_that_was_cancelled(stopped: OneFarm) -> None:
    stop_when_started(stopped, 2, cancel)
    run(["submit", "models.yaml"])
    (stopped.folder / "finished").unlink()
    assert run(["refine", "small"]) == 0
    assert stopped.blocks() == 4
    assert measured(stopped.cell()).blocks[0].p50_ns == pytest.approx(1e6 * PART)


def test_a_refinement_that_is_stopped_keeps_its_new_blocks(stopped: OneFarm) -> None:
    assert run(["submit", "models.yaml"]) == 0
    stop_when_started(stopped, 2, ctrl_c)
    assert run(["refine", "small", "--until", "1%"]) == 130
    cell = stopped.cell()
    assert (stopped.blocks(), cell.state, cell.kept) == (6, "done", "")
