"""`farm`: the verbs in the order of an average day. Each is in the file of its name, or of its group.

The file of a verb is imported when the verb is called, so that `farm --help` stays fast.
"""

import errno
import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial, wraps
from importlib import import_module
from importlib.metadata import entry_points
from inspect import getdoc
from types import ModuleType
from typing import Any, Final, cast

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.exceptions import TyperException
from typer.models import CommandInfo

from orchestrator.cli.front import FrontPage, front, meant
from orchestrator.cli.stopping import StoppedError
from orchestrator.cli.verb import INTERRUPTED
from orchestrator.errors import FarmError


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb, or a group of verbs, with the first sentence of its help.

    `name`: behind that of its group, if it is in one. `place`: its file and function, or the file that has a
    group's `VERBS`, where not of its name.
    """

    name: str
    summary: str
    place: str = ""

    @property
    def own_name(self) -> str:
        """Its name within its group."""
        return self.name.rpartition(" ")[2]


VERBS = (
    Verb("submit", "Measure models, or what a campaign file asks for, and compare."),
    Verb("status", "Show the state of the farm and the progress of campaigns."),
    Verb("results", "Show the newest counted result of each cell, one line a model."),
    Verb("compare", "Compare two runs: what is slower, faster, or the same."),
    Verb("show", "Show one cell in ten lines, or with --all in full."),
    Verb("repro", "Reproduce a row of the results on this machine."),
    Verb("import", "Show results of other tools beside the farm's own.", "imports.import_results"),
    Verb("refine", "Add blocks to the vaguest results of a campaign."),
    Verb("cancel", "Cancel a campaign or one cell, running or not.", "steer.cancel"),
    Verb("retry", "Queue failed, cancelled and deviceless cells again.", "steer.retry"),
    Verb("devices", "List the devices, reserve or steer one, or measure its noise."),
    Verb("doctor", "Check every part of the farm."),
    Verb("tune", "Find the best delegate and options for a model."),
    Verb("model zoo", "List the models that come with the farm."),
)
GROUPS = (
    Verb("db", "Maintain the database and the store."),
    Verb("lab", "Schedule for a lab; its machines, users and keys."),
    Verb("lab agents", "The machines of a lab."),
    Verb("lab keys", "The key that signs for the farm."),
    Verb("lab users", "Who may work with the farm over HTTP."),
    Verb("queue", "Pause a campaign, continue it, or run it before others.", "steer"),
    Verb("site", "The results as a static site."),
)

VERB_GROUPS = "delegate_farm.verbs"
"""Entry points whose value makes a `typer.Typer`: a group of verbs that another package adds."""

_HELP = {"help_option_names": ["-h", "--help"]}


class Later(TyperCommand):
    """A verb, or a group of verbs, whose file is imported when it is called; until then one line of help."""

    def __init__(self, name: str, summary: str, load: Callable[[], Any]) -> None:
        super().__init__(name, help=summary, rich_markup_mode=None)
        self.load = cache(load)

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Make the context of the verb itself."""
        return self.load().make_context(*arguments, **options)


@contextmanager
def _staying() -> Iterator[None]:
    """Run a block that makes what stays: looking for garbage there, now and whenever it is looked for later,
    takes a quarter of the time of a verb's import.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@cache
def parser() -> TyperGroup:
    """Return what reads a command line; made once, since that takes longer than many a verb."""
    with _staying():
        return _parser()


def _parser() -> TyperGroup:
    app = typer.Typer(
        cls=FrontPage,
        help=front.__doc__,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=_HELP,
    )
    app.callback()(front)
    for point in sorted(entry_points(group=VERB_GROUPS), key=lambda point: point.name):
        app.add_typer(point.load()(), name=point.name)
    root = cast(TyperGroup, _without_types(typer.main.get_command(app)))
    # A group of another package gets verbs of this one, too: `model zoo`.
    for name, group in root.commands.items():
        cast(TyperGroup, group).commands.update(_within(name))
    root.commands = {**_within(""), **root.commands}
    return root


def _within(group: str) -> dict[str, Any]:
    """Return the verbs and groups of a group, by name; those of `farm` itself for the empty name."""
    found = {}
    for load, listed in ((_verb, VERBS), (_group, GROUPS)):
        for one in listed:
            if one.name.removesuffix(one.own_name).rstrip() == group:
                found[one.own_name] = Later(one.own_name, one.summary, partial(load, one))
    return found


def _verb(verb: Verb) -> Any:
    module, function = (verb.place or f"{verb.own_name}.{verb.own_name}").split(".")
    return _command(verb.own_name, getattr(_imported(module), function))


def _group(group: Verb) -> Any:
    verbs = _imported(group.place or group.own_name).VERBS
    return TyperGroup(
        name=group.own_name,
        help=group.summary,
        commands={verb: _command(verb, run) for verb, run in verbs.items()} | _within(group.name),
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings=_HELP,
    )


def _imported(file: str) -> ModuleType:
    """Import a file of verbs."""
    with _staying():
        return import_module(f"{__name__}.{file}")


def _command(name: str, verb: Callable[..., int]) -> Any:
    """Return a verb as a command; its examples stand below its options, each on a line of its own (`\\b`)."""
    text, _, examples = (getdoc(verb) or "").partition("\nExamples:\n")
    info = CommandInfo(name, callback=_stoppable(verb), help=text, epilog=f"\b\nExamples:\n{examples}")
    made = typer.main.get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)
    return _without_types(made)


def _without_types(command: Any) -> Any:
    """Return a command, or a group, whose help names values by their parameters, not by Python's types."""
    for one in getattr(command, "commands", {}).values():
        _without_types(one)
    for parameter in command.params:
        if isinstance(parameter, TyperArgument):
            parameter.metavar = parameter.metavar or str(parameter.name).upper()
            # On the instance: Typer has no setting for either.
            vars(parameter).update(display_type_rich=_no_type, get_usage_pieces=partial(_usage, parameter))
        elif parameter.metavar is None and not parameter.type_descriptor.is_choice:
            parameter.metavar = str(parameter.name).upper()
    return command


def _no_type(ctx: Any) -> None:
    del ctx


def _usage(argument: Any, ctx: Any) -> list[str]:
    """Return an argument as the line of usage has it: `CELL...`, in brackets where it may be left out."""
    del ctx
    many = "" if argument.nargs == 1 or argument.metavar.endswith("...") else "..."
    return [f"{argument.metavar}{many}" if argument.required else f"[{argument.metavar}{many}]"]


def _stoppable(verb: Callable[..., int]) -> Callable[..., int]:
    """Return a verb that ends with the exit code of the signal that stopped it."""

    @wraps(verb)
    def run_verb(*arguments: Any, **options: Any) -> int:
        try:
            return verb(*arguments, **options)
        except StoppedError as stop:
            return stop.exit_code

    return run_verb


_REMEDIES: Final = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space, or raise the quota",
    errno.EMFILE: "allow this shell more open files: ulimit -n 1024",
    errno.ENFILE: "the system has too many open files; end some programs",
    errno.EROFS: "the file system is read-only",
}
"""What a user does about a lack of the machine, which any step of any verb may meet."""


def main() -> None:
    """Entry point of `farm`: runs a verb; an expected error becomes one clear line and its exit code."""
    code = run(sys.argv[1:])
    # Nothing that is left is used again: a last walk through all of it, at the end of Python, is for nothing.
    gc.disable()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line; returns its exit code. With --json an error is an object on stdout, too."""
    # It takes the form of results, which `farm --help` does without.
    from orchestrator.cli import output  # noqa: PLC0415

    output.tolerate_any_text()
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    as_json = "--json" in arguments
    try:
        return int(parser().main(arguments, prog_name="farm", standalone_mode=False) or 0)
    except FarmError as error:
        output.error(str(error))
        return output.failed(str(error), error.exit_code, as_json)
    except TyperException as error:
        text = error.format_message() + meant(arguments)
        output.usage(text)
        return output.failed(text, error.exit_code, as_json)
    except (typer.Abort, KeyboardInterrupt):
        output.note("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # `farm results | head` ended: Python would flush stdout once more at its end, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0)
        # Any other is a fault of the farm's own: its traceback is wanted.
        if remedy is None:
            raise
        text = f"{': '.join(filter(None, (error.filename, error.strerror)))}; {remedy}"
        output.error(text)
        return output.failed(text, FarmError.exit_code, as_json)
