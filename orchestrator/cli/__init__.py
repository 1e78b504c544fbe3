"""`farm`: the verbs in the order of an average day. A verb imports what it needs when it runs."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points

import typer
from typer.exceptions import TyperException

from orchestrator.cli.jobs import cancel, status
from orchestrator.cli.lab import devices, doctor, version
from orchestrator.cli.results import results, show
from orchestrator.cli.site import build
from orchestrator.cli.submit import submit
from orchestrator.cli.validate import validate
from orchestrator.cli.verb import INTERRUPTED, Verb
from orchestrator.errors import FarmError

VERBS = (
    Verb(
        "submit",
        submit,
        ("farm submit models.yaml", "farm submit models.yaml --dry-run", "farm submit --model my.tflite"),
    ),
    Verb("validate", validate, ("farm validate models.yaml",)),
    Verb("status", status, ("farm status", "farm status demo")),
    Verb("results", results, ("farm results", "farm results --campaign all --format csv")),
    Verb("show", show, ("farm show 3f2a",)),
    Verb("cancel", cancel, ("farm cancel demo",)),
    Verb("devices", devices, ("farm devices",)),
    Verb("doctor", doctor, ("farm doctor",)),
    Verb("version", version, ("farm version --json",)),
)
VERB_GROUPS = "delegate_farm.verbs"
"""Entry points whose value makes a `typer.Typer`: a group of verbs that another package adds."""

SITE_VERBS = (Verb("build", build, ("farm site build", "farm site build --out public")),)


def application() -> typer.Typer:
    """The command line with every verb."""
    app = _group("How fast, how exact and how completely does a model run, on which delegate and machine?")
    site = _group("The results as a static site.")
    for group, verbs in ((app, VERBS), (site, SITE_VERBS)):
        for verb in verbs:
            group.command(verb.name, epilog=verb.epilog)(verb.run)
    app.add_typer(site, name="site")
    for point in sorted(entry_points(group=VERB_GROUPS), key=lambda point: point.name):
        app.add_typer(point.load()(), name=point.name)
    return app


def main() -> None:
    """Entry point of `farm`: runs a verb; an expected error becomes one clear line and its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; returns its exit code."""
    from orchestrator.cli import output

    output.tolerate_any_text()
    command = typer.main.get_command(application())
    try:
        return int(command.main(arguments, prog_name="farm", standalone_mode=False) or 0)
    except FarmError as error:
        output.error(str(error))
        return error.exit_code
    except TyperException as error:
        output.usage(error.format_message())
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        output.note("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _group(text: str) -> typer.Typer:
    return typer.Typer(
        help=text,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
