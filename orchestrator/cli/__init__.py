"""`farm`: the verbs in the order of an average day. Each is in the file of its name, or of its group.

A verb imports what it needs when it runs, so that `farm --help` stays fast.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache, wraps
from importlib.metadata import entry_points
from typing import Any, cast

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from orchestrator.cli.agents import acl, drain, enrol, list_agents, remove, revoke, rotate
from orchestrator.cli.compare import compare
from orchestrator.cli.db import back_up_database, check_database, prune_database, show_references
from orchestrator.cli.devices import devices
from orchestrator.cli.doctor import doctor
from orchestrator.cli.front import FrontPage, front, meant
from orchestrator.cli.imports import import_results
from orchestrator.cli.keys import list_keys, retire_key, rotate_key
from orchestrator.cli.lock import lock
from orchestrator.cli.logs import logs
from orchestrator.cli.refine import refine
from orchestrator.cli.repro import repro
from orchestrator.cli.results import results
from orchestrator.cli.schema import schema
from orchestrator.cli.serve import serve
from orchestrator.cli.show import show
from orchestrator.cli.site import build
from orchestrator.cli.status import status
from orchestrator.cli.steer import cancel, pause, priority, resume, retry
from orchestrator.cli.stopping import StoppedError
from orchestrator.cli.submit import submit
from orchestrator.cli.users import add_user, list_users, revoke_user
from orchestrator.cli.validate import validate
from orchestrator.cli.verb import INTERRUPTED, Verb
from orchestrator.cli.version import version
from orchestrator.cli.watch import watch
from orchestrator.cli.why import why
from orchestrator.cli.zoo import zoo
from orchestrator.errors import FarmError

VERBS = (
    Verb(
        "submit",
        submit,
        ("farm submit models.yaml", "farm submit models.yaml --dry-run", "farm submit --model my.tflite"),
    ),
    Verb("validate", validate, ("farm validate models.yaml",)),
    Verb("schema", schema, ("farm schema", "farm schema --json > models.schema.json")),
    Verb("status", status, ("farm status", "farm status demo")),
    Verb("watch", watch, ("farm watch", "farm watch nightly --json")),
    Verb("why", why, ("farm why iris", "farm why 3f2a")),
    Verb("logs", logs, ("farm logs iris gpu", "farm logs 3f2a -f")),
    Verb(
        "results",
        results,
        (
            "farm results",
            "farm results nightly --metric init --only 'face_*'",
            "farm results all --format csv",
        ),
    ),
    Verb(
        "compare",
        compare,
        (
            "farm compare monday tuesday --fail-on regression",
            "farm compare demo cpu,gpu --by delegate --format md",
            "farm compare monday tuesday --rerun",
        ),
    ),
    Verb("show", show, ("farm show iris gpu", "farm show 3f2a", "farm show nightly --manifest")),
    Verb(
        "repro", repro, ("farm repro iris gpu", "farm repro 3f2a --out again.yaml", "farm repro 3f2a --run")
    ),
    Verb(
        "import",
        import_results,
        (
            "farm import bench.log --device pixel-8",
            "farm import report.json profile.json --campaign phones",
            "farm import run1.log run2.log --model-id mobilenet_v2 --delegate gpu",
        ),
    ),
    Verb("refine", refine, ("farm refine demo", "farm refine demo --until 3% --for 10m")),
    Verb("cancel", cancel, ("farm cancel demo",)),
    Verb("pause", pause, ("farm pause nightly",)),
    Verb("resume", resume, ("farm resume nightly",)),
    Verb("retry", retry, ("farm retry nightly", "farm retry nightly --failed", "farm retry 3f2a")),
    Verb("priority", priority, ("farm priority nightly 10", "farm priority 3f2a -- -5")),
    Verb(
        "devices",
        devices,
        (
            "farm devices",
            "farm devices reserve gpu-0 --for 2h --reason 'new driver'",
            "farm devices quarantine gpu-0 --reason 'fan is loud'",
            "farm devices release gpu-0",
            "farm devices cooldown gpu-0 --seconds 5",
            "farm devices noise gpu-0",
            "farm devices history gpu-0",
        ),
    ),
    Verb("lock", lock, ("farm lock gpu-0 -- clpeak", "farm lock --host --timeout 10m -- make bench")),
    Verb("doctor", doctor, ("farm doctor",)),
    Verb("serve", serve, ("farm serve", "farm serve --log-format json")),
    Verb("zoo", zoo, ("farm zoo", "farm zoo resnet", "farm zoo 'hf_*' --json")),
    Verb("version", version, ("farm version --json",)),
)
VERB_GROUPS = "delegate_farm.verbs"
"""Entry points whose value makes a `typer.Typer`: a group of verbs that another package adds."""

SITE_VERBS = (Verb("build", build, ("farm site build", "farm site build --out public")),)
AGENT_VERBS = (
    Verb("list", list_agents, ("farm agents list", "farm agents list --json")),
    Verb("drain", drain, ("farm agents drain rack-3", "farm agents drain rack-3 --undo")),
    Verb("remove", remove, ("farm agents remove rack-3",)),
    Verb(
        "enrol",
        enrol,
        ("farm agents enrol rack-3", "farm agents enrol rack-3 --write DIR"),
    ),
    Verb("rotate", rotate, ("farm agents rotate rack-3",)),
    Verb("revoke", revoke, ("farm agents revoke rack-3",)),
    Verb("acl", acl, ("farm agents acl",)),
)
KEYS_VERBS = (
    Verb("list", list_keys, ("farm keys list",)),
    Verb("rotate", rotate_key, ("farm keys rotate", "farm keys rotate --overlap 2880")),
    Verb("retire", retire_key, ("farm keys retire",)),
)
DB_VERBS = (
    Verb(
        "prune", prune_database, ("farm db prune --keep 90d --dry-run", "farm db prune --keep-campaigns 20")
    ),
    Verb("backup", back_up_database, ("farm db backup farm-2026-01-31.db",)),
    Verb("check", check_database, ("farm db check", "farm db check --deep")),
    Verb("references", show_references, ("farm db references", "farm db references mobilenet --forget")),
)
USERS_VERBS = (
    Verb(
        "add",
        add_user,
        ("farm users add ana", "farm users add nightly --scope submit,read --expires 90d"),
    ),
    Verb("list", list_users, ("farm users list",)),
    Verb("revoke", revoke_user, ("farm users revoke ana",)),
)
GROUPS = (
    ("agents", "The machines of a lab.", AGENT_VERBS),
    ("db", "Maintain the database and the store.", DB_VERBS),
    ("keys", "The key that signs for the farm.", KEYS_VERBS),
    ("site", "The results as a static site.", SITE_VERBS),
    ("users", "Who may work with the farm over HTTP.", USERS_VERBS),
)


def application() -> typer.Typer:
    """Build the command line with every verb."""
    app = _group(front.__doc__ or "", FrontPage, add_completion=True)
    app.callback()(front)
    _add(app, VERBS)
    for name, text, verbs in GROUPS:
        group = _group(text)
        _add(group, verbs)
        app.add_typer(group, name=name)
    for point in sorted(entry_points(group=VERB_GROUPS), key=lambda point: point.name):
        app.add_typer(point.load()(), name=point.name)
    return app


@cache
def parser() -> TyperGroup:
    """Return the parser of the command line; made once, since that takes longer than many a verb."""
    return cast(TyperGroup, typer.main.get_command(application()))


def _add(group: typer.Typer, verbs: Sequence[Verb]) -> None:
    for verb in verbs:
        group.command(verb.name, epilog=verb.epilog)(_stoppable(verb.run))


def _stoppable(verb: Callable[..., int]) -> Callable[..., int]:
    """Return a verb that ends with the exit code of the signal that stopped it."""

    @wraps(verb)
    def run_verb(*arguments: Any, **options: Any) -> int:
        try:
            return verb(*arguments, **options)
        except StoppedError as stop:
            return stop.exit_code

    return run_verb


def main() -> None:
    """Entry point of `farm`: runs a verb; an expected error becomes one clear line and its exit code."""
    code = run(sys.argv[1:])
    # Nothing that is left is used again: a last walk through all of it, at the end of Python, is for nothing.
    gc.disable()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line; returns its exit code."""
    from orchestrator.cli import output

    output.tolerate_any_text()
    try:
        return int(parser().main(arguments, prog_name="farm", standalone_mode=False) or 0)
    except FarmError as error:
        output.error(str(error))
        return error.exit_code
    except TyperException as error:
        output.usage(error.format_message() + meant(arguments))
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        output.note("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # `farm results | head` ended: Python would flush stdout once more at its end, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _group(text: str, cls: type[TyperGroup] = TyperGroup, *, add_completion: bool = False) -> typer.Typer:
    return typer.Typer(
        cls=cls,
        help=text,
        no_args_is_help=True,
        add_completion=add_completion,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
