"""Names, reasons, logs and devices of strangers reach the terminal as text and nothing more."""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.wire.messages import MissingDelegate, Reason, ReasonCode, Status
from orchestrator.cli import run
from orchestrator.db.engine.sessions import Database
from orchestrator.db.migrate import migrate
from orchestrator.db.scheduling import ingest
from tests.orchestrator.asked import CPU, asked
from tests.orchestrator.stocked import cells, dispatch, report_devices, result, stock

HOSTILE = "\x1b]0;owned\x07\x1b[31m\x9b2J\r\u202e|a|\n<b>\u200b[x](y)"
DEVICE = CPU.model_copy(update={"name": f"CPU{HOSTILE}", "vendor": f"vendor{HOSTILE}"})
SHOWN = [
    ("results",), ("results", "--format", "md"), ("results", "--format", "csv"),
    ("results", "--json"), ("status",), ("status", "CAMPAIGN"), ("status", "--json"), ("devices",),
    ("status", "--watch", "CAMPAIGN"),
    ("show", "ENDED"), ("show", "WAITING"), ("show", "--logs", "ENDED"),
    ("show", "--logs", "ENDED", "--json"), ("show", "--why", "ENDED"),
    ("show", "--why", "WAITING"), ("retry", "ENDED"), ("cancel", "WAITING"),
]  # fmt: skip
"""Verbs that print what strangers chose; those that change something come last."""


@dataclass(frozen=True)
class HostileFarm:
    """A failed cell and a waiting one of a campaign in which every text is hostile; `names`: their ids."""

    home: Path
    names: dict[str, str]


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> HostileFarm:
    home = tmp_path_factory.mktemp("home")
    database = Database.connect(home / "farm.db")
    migrate(database)
    campaign = asked((f"first{HOSTILE}", f"second{HOSTILE}"), name=f"campaign{HOSTILE}")
    campaign = dataclasses.replace(campaign, labels={"label": HOSTILE})
    campaign_id = stock(database, campaign, (DEVICE,))
    report_devices(database, (DEVICE,), [MissingDelegate(kind="gpu", reason=f"no driver{HOSTILE}")])
    ended, waiting = cells(database)
    _fail(database, ended.cell_id)
    database.close()
    return HostileFarm(home, {"CAMPAIGN": campaign_id, "ENDED": ended.cell_id, "WAITING": waiting.cell_id})


@pytest.fixture
def shown(farm: HostileFarm, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Return a function that runs one command line and returns its output."""
    monkeypatch.setenv("FARM_HOME", str(farm.home))

    def run_verb(*words: str) -> str:
        run([farm.names.get(word, word) for word in words])
        return "".join(capfd.readouterr())

    return run_verb


def _fail(database: Database, cell_id: str) -> None:
    reason = Reason(code=ReasonCode.WRONG_OUTPUT, text=f"differs{HOSTILE}")
    answer = result(dispatch(database, cell_id), Status.FAILED)
    message = answer.model_copy(update={"reason": reason, "log_tail": f"log{HOSTILE}\n"})
    with database.write() as session:
        ingest.apply(session, message, datetime.now(UTC))


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_no_hidden_character_reaches_the_terminal(shown: Callable[..., str], words: tuple[str, ...]) -> None:
    text = shown(*words)
    assert text
    # A CSV file's own lines end with \r\n.
    assert [c for c in text.replace("\r\n", "\n") if _hides(c)] == []


def test_a_markdown_table_keeps_its_columns_and_holds_no_markup(shown: Callable[..., str]) -> None:
    table = [line for line in shown("results", "--format", "md").splitlines() if line[:1] == "|"]
    assert any("first" in line for line in table)
    for line in table:
        assert line.replace("\\|", "").count("|") == table[0].count("|")
        assert "<b>" not in line
        assert "[x](" not in line


def _hides(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and character not in "\n\t"
