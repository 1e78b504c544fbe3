"""`farm lab users add | list | revoke`: who may work with the farm over HTTP, and what each may do."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated

import typer

from orchestrator.cli import output
from orchestrator.cli.verb import OK, Json, open_farm, read_age
from orchestrator.config.address import Address
from orchestrator.config.clock import utc_now
from orchestrator.db.devices.users import UserToken
from orchestrator.errors import UsageError
from orchestrator.policy.rights import read_scopes
from orchestrator.trust import revocations
from orchestrator.trust.users import Users

Name = Annotated[str, typer.Argument(help="The user's name: lower-case letters, digits, - and _.")]


def add_user(
    name: Name,
    scope: Annotated[
        str,
        typer.Option(
            "--scope", metavar="LIST", help="What the user may do: read, submit, cancel-own, admin."
        ),
    ] = "submit,cancel-own,read",
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="AGE", help="Good for so long: 12h, 90d, 8w; else until revoked."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="End the token that the user has, and make another.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Give a user a token: print the one line that sets up the user's machine.

    The token is shown this once; the farm keeps its hash. Scope admin includes every other one.

    Examples:
      farm lab users add ana
      farm lab users add nightly --scope submit,read --expires 90d
    """
    scopes = read_scopes(scope.split(","))
    valid = None if expires is None else read_age(expires, "--expires")
    with _users() as (users, address):
        token = users.add(name, scopes, valid=valid, address=address, replace=replace)
    if as_json:
        output.emit_json({"user": name, "url": address.url, "token": token, "scopes": list(scopes)})
        return OK
    # The line alone is the result: a log of standard error tells no secret.
    output.note(f"user {name} may: {', '.join(scopes)}; the line sets up a shell of theirs, shown this once:")
    output.line(f"export FARM_URL={shlex.quote(address.url)} FARM_TOKEN={token}")
    return OK


def list_users(as_json: Json = False) -> int:
    """List the users, what each may do, and until when.

    Examples:
      farm lab users list
    """
    now = utc_now()
    with _users() as (users, _):
        found = users.listed()
    if as_json:
        output.emit_json([_json(entry, now) for entry in found])
        return OK
    if not found:
        output.line("no users yet; add one: farm lab users add NAME")
        return OK
    output.table(
        ("user", "may", "state", "since (UTC)", "expires (UTC)"),
        [
            (
                entry.name,
                ", ".join(entry.scopes),
                _state(entry, now),
                f"{entry.made_at:%Y-%m-%d %H:%M}",
                "never" if entry.expires_at is None else f"{entry.expires_at:%Y-%m-%d %H:%M}",
            )
            for entry in found
        ],
    )
    return OK


def revoke_user(name: Name, as_json: Json = False) -> int:
    """End a user's token now. The user's campaigns stay and continue.

    Examples:
      farm lab users revoke ana
    """
    with _users() as (users, _):
        users.revoke(name)
    return output.answer({"user": name, "state": "revoked"}, f"the token of {name} is revoked", as_json)


@contextmanager
def _users() -> Iterator[tuple[Users, Address]]:
    with open_farm() as farm:
        if farm.lab.address is None:
            raise UsageError(
                "users come over HTTP, and no endpoint is set: set FARM_ENDPOINT for `farm lab serve`, "
                "e.g. https://lab.example.org:8460"
            )
        yield Users(farm.database), farm.lab.address
        # What was revoked goes beside the keys at once: a restored backup must not bring it back.
        revocations.reconcile(farm.database, farm.home.keys, utc_now())


def _state(entry: UserToken, now: datetime) -> str:
    if entry.revoked_at is not None:
        return "revoked"
    return "valid" if entry.is_valid(now) else "expired"


def _json(entry: UserToken, now: datetime) -> dict[str, object]:
    return {
        "user": entry.name,
        "scopes": entry.scopes,
        "state": _state(entry, now),
        "made_at": entry.made_at,
        "expires_at": entry.expires_at,
    }


VERBS = {"add": add_user, "list": list_users, "revoke": revoke_user}
