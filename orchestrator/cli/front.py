"""The front page of `farm`: its verbs in groups, `--version`, and suggestions for unknown verbs."""

from importlib.metadata import version
from typing import Any, Final

import typer
from typer.core import TyperGroup

SECTIONS: Final = {
    "Measure": ("submit", "results", "refine", "tune", "compare", "show", "repro", "import", "site"),
    "Look": ("status", "model"),
    "Queue": ("cancel", "retry", "queue"),
    "Lab": ("lab", "devices"),
    "Maintain": ("doctor", "db"),
}
"""Verbs and groups of verbs by what they are for. Those of other packages follow under `More`."""

_START: Final = "Start here: farm submit my.tflite, or farm submit models.yaml"

SYNONYMS: Final = {
    "run": "submit", "benchmark": "submit", "measure": "submit", "start": "submit",
    "list": "status", "ls": "status", "ps": "status", "jobs": "status",
    "report": "results", "table": "results", "export": "results", "diff": "compare", "regress": "compare",
    "html": "site build", "web": "site build", "publish": "site build",
    "stop": "cancel", "kill": "cancel", "abort": "cancel", "rerun": "retry", "again": "retry",
    "autotune": "tune", "optimize": "tune", "best": "tune", "reproduce": "repro", "replay": "repro",
    "check": "doctor", "health": "doctor", "log": "show --logs", "tail": "show --logs",
    "inspect": "model info", "info": "model info", "plan": "model plan", "profile": "model profile",
    "models": "model zoo", "prime": "model prime", "precompile": "model prime", "warmup": "model prime",
    "inference_diff": "model diff", "run_eval": "model eval", "benchmark_model": "model bench",
    "lint": "submit --check", "hosts": "lab agents list", "gpus": "devices",
    "watch": "status --watch", "why": "show --why", "logs": "show --logs",
    "validate": "submit --check", "schema": "submit --schema",
    "pause": "queue pause", "resume": "queue resume", "priority": "queue priority",
    "bench": "model bench", "skeleton": "model skeleton", "zoo": "model zoo",
    "serve": "lab serve", "agents": "lab agents list", "users": "lab users list",
    "keys": "lab keys list",
    "lock": "lab lock", "version": "doctor --versions",
}  # fmt: skip
"""Words that users of other tools try, and verbs without their group, with the verb of that meaning here."""


class FrontPage(TyperGroup):
    """The verbs under headings, in the order of `SECTIONS`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one block for each section."""
        formatter.write_paragraph()
        formatter.write_text(_START)
        listed = {name for names in SECTIONS.values() for name in names}
        others = tuple(name for name in self.list_commands(ctx) if name not in listed)
        widest = max(map(len, (*listed, *others)))
        for title, names in {**SECTIONS, "More": others}.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [
                # One width in all sections. 4: click's indent, and its blanks between two columns.
                (name.ljust(widest), command.get_short_help_str(formatter.width - widest - 4))
                for name, command in commands
                if command is not None
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def meant(arguments: list[str]) -> str:
    """Suggest the verb that an unknown one may mean, as the end of an error; empty if there is none."""
    verb = next((word for word in arguments if not word.startswith("-")), "")
    return f" Did you mean 'farm {SYNONYMS[verb]}'?" if verb in SYNONYMS else ""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"farm {version('delegate-farm')}")
        raise typer.Exit


def front(
    version: bool = typer.Option(
        False, "--version", "-V", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Measure how fast, how exactly and how completely a model runs, on which delegate and machine."""
    del version
