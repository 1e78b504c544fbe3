"""Every verb explains itself, has `--json`, and asking for help stays cheap."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version as installed
from typing import Any

import pytest

from orchestrator.cli import GROUPS, VERBS, Later, parser
from orchestrator.cli.front import SECTIONS, SYNONYMS
from tests.orchestrator.cli.conftest import Call, Shell
from tests.services.forks import run


def _commands(group: Any, *above: str) -> Iterator[tuple[str, ...]]:
    """Every verb of ours that the parser knows, as the words that call it."""
    for name, command in group.commands.items():
        loaded = command.load() if isinstance(command, Later) else command
        if hasattr(loaded, "commands"):
            yield from _commands(loaded, *above, name)
        elif isinstance(command, Later) or above[0] != "model":
            yield *above, name


COMMANDS = {" ".join(words): words for words in _commands(parser())}
SERVICES = ("serve", "lock")
"""They print nothing of their own: one logs, the other becomes the user's command."""
HEAVY = {
    "celery",
    "kombu",
    "redis",
    "psycopg",
    "alembic",
    "numpy",
    "jinja2",
    "pyopencl",
    "rich",
}
"""Help on a verb imports none of these."""
A_FARM_S = {"sqlmodel", "sqlalchemy", "yaml", "pydantic"}
"""What the file of a verb that works with a farm imports; `farm --help` does without."""


def test_help_lists_every_verb_once_under_its_heading(call: Call, shell: Shell) -> None:
    ran = call(shell, "--help")
    assert ran.code == 0
    page = ran.out.split("Start here:")[1]
    listed = [line.split()[0] for line in page.splitlines() if line.startswith("  ")]
    own = {one.name.split()[0] for one in (*VERBS, *GROUPS)}
    assert listed == [name for names in SECTIONS.values() for name in names]
    assert set(listed) == own
    assert all(f"\n{title}:\n" in page for title in SECTIONS)
    assert len(listed) == 18, "verbs that a person can hold"
    assert "..." not in page, "a verb's first sentence fits its line"


def test_the_front_page_says_of_a_verb_what_its_own_help_begins_with() -> None:
    said = {verb.name: verb.summary for verb in VERBS if " " not in verb.name}
    own = {name: parser().commands[name].load().help or "" for name in said}
    assert said == {
        name: " ".join(text.split()).partition(". ")[0].rstrip(".") + "." for name, text in own.items()
    }


def test_the_version_is_one_line(call: Call, shell: Shell) -> None:
    ran = call(shell, "--version")
    assert (ran.code, ran.out) == (0, f"farm {installed('delegate-farm')}\n")


def test_a_word_of_the_same_meaning_leads_to_the_verb(call: Call, shell: Shell) -> None:
    known = {*COMMANDS, *(f"model {name}" for name in parser().commands["model"].commands)}
    for verb, _, option in (words.partition(" --") for words in SYNONYMS.values()):
        assert verb in known
        assert not option or f"--{option} " in call(shell, *verb.split(), "--help").out
    ran = call(shell, "measure", "my.tflite")
    assert (ran.code, ran.out) == (2, "")
    assert "No such command 'measure'. Did you mean 'farm submit'?" in ran.err


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_every_verb_has_help_with_an_example_and_json(
    call: Call, shell: Shell, command: tuple[str, ...]
) -> None:
    ran = call(shell, *command, "--help")
    assert ran.code == 0
    text, _, examples = ran.out.partition("Examples:")
    assert len(text.split("\n")[2].strip()) > 10
    assert all(line.strip().startswith("farm " + " ".join(command)) for line in examples.split("\n") if line)
    assert examples.strip()
    assert "--json" in text or command[-1] in SERVICES


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str]]:
    """Return the modules that one process has imported after help on each verb, the first of them `farm`
    itself.
    """
    code = (
        "import json, sys\nfrom orchestrator.cli import run\n"
        f"for command in {[(), *COMMANDS.values()]!r}:\n"
        "    run([*command, '--help'])\n"
        "    print('loaded:', json.dumps([' '.join(command), sorted(sys.modules)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told = [line.partition("loaded: ")[2] for line in done.stdout.splitlines() if line.startswith("loaded: ")]
    return dict(map(json.loads, told))


@pytest.mark.parametrize("command", ["", *COMMANDS], ids=["farm", *COMMANDS])
def test_help_imports_nothing_heavy(loaded: dict[str, list[str]], command: str) -> None:
    forbidden = HEAVY if command else HEAVY | A_FARM_S
    assert "typer" in loaded[command]
    assert forbidden & set(loaded[command]) == set()


@pytest.mark.parametrize(
    ("arguments", "words"),
    {
        "unknown_verb": (["sumbit"], "No such command 'sumbit'. Did you mean 'submit'"),
        "unknown_option": (["submit", "--dryrun"], "No such option: --dryrun"),
        "missing_argument": (["show"], "Missing argument 'CELL'"),
        "unknown_format": (["results", "--format", "xml"], "'xml' is not one of"),
        "nothing_to_submit": (["submit"], "give a campaign file or models"),
        "both_to_submit": (["submit", "a.yaml", "b.tflite"], "a.yaml is a campaign file; it goes alone"),
    }.values(),
)
def test_a_wrong_command_line_is_one_clear_error(shell: Shell, arguments: list[str], words: str) -> None:
    ran = shell.farm(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert words in ran.err
    assert not shell.home.exists()


def test_version_names_the_farm(shell: Shell) -> None:
    assert shell.farm("doctor", "--versions").out.startswith("delegate-farm ")
    assert {"delegate-farm", "python", "numpy"} <= set(shell.farm("doctor", "--versions", "--json").json())


def test_a_shell_completes_verbs(shell: Shell) -> None:
    asked = {"_FARM_COMPLETE": "complete_bash", "COMP_WORDS": "farm re", "COMP_CWORD": "1"}
    ran = run("farm", cwd=shell.folder, env=shell.environment | asked)
    assert set(ran.stdout.split()) == {"refine", "repro", "results", "retry"}
    assert "--install-completion" in shell.farm("--help").out


def test_the_agent_s_help_looks_like_the_farm_s(shell: Shell) -> None:
    ran = run("farm-agent", "--help", cwd=shell.folder, env=shell.environment)
    lines = ran.stdout.splitlines()
    headings = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Options:", "Serve:", "Look:", "Maintain:"]
    assert any(line.startswith("Start here: farm-agent enrol") for line in lines)
    verbs = {line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("  -")}
    assert {"enrol", "start", "probe", "check", "version", "tuning"} <= verbs


def test_garbage_is_looked_for_while_a_verb_runs() -> None:
    """Its import makes none, and is quicker without; a verb that runs for hours makes some."""
    script = (
        "import gc, orchestrator.cli as cli; parser = cli.parser(); print(gc.isenabled()); "
        "parser.commands['results'].load(); print(gc.isenabled(), gc.get_freeze_count() > 0)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True"] * 3
