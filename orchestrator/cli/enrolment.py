"""`farm agents enrol | rotate | revoke | acl`: who may be an agent of the lab."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.agents import Name
from orchestrator.cli.verb import OK, Json, open_farm

if TYPE_CHECKING:
    from orchestrator.trust.credentials_service import Office

_LONGEST_MINUTES = 7 * 24 * 60

NewName = Annotated[str, typer.Argument(help="The agent's name: letters, digits, - and _.")]
Valid = Annotated[
    int, typer.Option(help="Minutes that the one-time token can be used.", min=1, max=_LONGEST_MINUTES)
]
Overlap = Annotated[
    int, typer.Option(help="Minutes that the present secrets go on.", min=0, max=_LONGEST_MINUTES)
]
Write = Annotated[
    Path | None,
    typer.Option("--write", help="State folder of an agent on this machine: enrol it there at once."),
]


def enrol(name: NewName, valid: Valid = 60, write: Write = None, as_json: Json = False) -> int:
    """Let a machine become an agent: prints a one-time token for `farm-agent enrol` on that machine.

    The agent makes its keys itself; the farm keeps a public key and hashes. An agent that was removed or
    revoked may enrol again.
    """
    with _office() as office:
        if write is not None:
            office.write(name, write.absolute())
            return _written(name, write, as_json)
        token = office.invite(name, timedelta(minutes=valid))
        return _say_token(office, name, token, valid, as_json)


def rotate(
    name: Name, valid: Valid = 60, overlap: Overlap = 60, write: Write = None, as_json: Json = False
) -> int:
    """Give an agent new secrets: prints a one-time token for `farm-agent enrol` on its machine.

    From the moment of its use both old and new secrets are good for `--overlap` minutes, then the new alone.
    """
    with _office() as office:
        if write is not None:
            office.write(name, write.absolute(), timedelta(minutes=overlap))
            return _written(name, write, as_json)
        token = office.invite(name, timedelta(minutes=valid), timedelta(minutes=overlap))
        return _say_token(office, name, token, valid, as_json)


def revoke(name: Name, as_json: Json = False) -> int:
    """Shut an agent out now: its key, its token and its user at the broker are refused.

    What runs there is lost and is tried elsewhere; whatever it sends is ignored. Its results stay.
    """
    from orchestrator.cli import output

    with _office() as office:
        lost = office.revoke(name)
    if as_json:
        output.emit_json({"agent": name, "state": "revoked", "lost": lost})
    else:
        output.line(f"{name} is revoked; attempts that were under way there and are lost: {lost}")
    return OK


def acl(as_json: Json = False) -> int:
    """Print the agents' users as Redis commands, for a broker whose users the farm may not manage.

    Hashes of passwords are in them, and no password.
    """
    from orchestrator.cli import output

    with _office() as office:
        lines = office.rights()
    if as_json:
        output.emit_json(lines)
        return OK
    for line in lines:
        output.line(line)
    return OK


@contextmanager
def _office() -> Iterator[Office]:
    from orchestrator.trust.credentials_service import Office

    with open_farm() as farm:
        yield Office.open(farm.home, farm.lab, farm.database)


def _say_token(office: Office, name: str, token: str, valid: int, as_json: bool) -> int:
    from orchestrator.cli import output

    address = office.lab.address
    server = "URL" if address is None else address.url
    if as_json:
        output.emit_json(
            {
                "agent": name,
                "token": token,
                "server": None if address is None else address.url,
                "valid_minutes": valid,
            }
        )
        return OK
    output.line(f"one-time token for {name}, good for {valid} minutes:")
    output.line(f"  farm-agent enrol --server {server} --token {token}")
    if address is None:
        output.note("no endpoint is set: set FARM_ENDPOINT for `farm serve`, or use --write on one machine")
    return OK


def _written(name: str, folder: Path, as_json: bool) -> int:
    from orchestrator.cli import output

    if as_json:
        output.emit_json({"agent": name, "state_folder": str(folder)})
    else:
        output.line(f"{name} is enrolled; now run: farm-agent start --state {folder}")
    return OK
