"""`farm site`: the results as pages."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import output
from orchestrator.cli.verb import OK, SOME_FAILED, Json, open_farm
from orchestrator.config.home import FarmHome
from orchestrator.results.format import counted


def build(
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write; left out: site/ under $FARM_HOME.")
    ] = None,
    anonymous: Annotated[
        bool,
        typer.Option(
            "--anonymous", help="Leave out names of users and hosts, and the folders of local paths."
        ),
    ] = False,
    notes: Annotated[
        Path | None,
        typer.Option("--notes", help="A TOML file of accepted changes: [[accepted]] with model, at, note."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Build the static site of everything measured; it opens from file:// without a server.

    Campaigns that have not changed since the last build are taken from it. The same database gives the same
    bytes.

    Examples:
      farm site build
      farm site build --out public --anonymous
    """
    # jinja2, which no help needs.
    from orchestrator.site.anonymous import AnonymousSource  # noqa: PLC0415
    from orchestrator.site.build import build_site  # noqa: PLC0415
    from orchestrator.site.notes import Notes  # noqa: PLC0415

    with open_farm() as farm:
        source = AnonymousSource(farm.reading) if anonymous else farm.reading
        accepted = None if notes is None else Notes.read(notes)
        index = build_site(source, out or FarmHome.from_environment().site, accepted)
    return output.answer({"site": str(index)}, f"site: {index.absolute().as_uri()}", as_json)


def serve(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any that is free.")] = 8321,
    as_json: Json = False,
) -> int:
    """Build the site, serve it on this machine, and build it again as results arrive, until Ctrl-C.

    It listens on 127.0.0.1 alone. For others, put a built site behind a web server.

    Examples:
      farm site serve
      farm site serve --port 9000
    """
    # jinja2, which no help needs.
    from orchestrator.site.build import build_site  # noqa: PLC0415
    from orchestrator.site.serve import serve_site  # noqa: PLC0415

    out = FarmHome.from_environment().site
    with open_farm() as farm:

        def newest() -> object:
            # Each step of a cell changes a count: one that is measured again leaves `done` and comes back.
            return [(one.campaign_id, one.counts) for one in farm.reading.campaigns()]

        def say(line: str) -> None:
            output.answer({"said": line}, line, as_json)

        serve_site(lambda: build_site(farm.reading, out), newest, port, say)
    return OK


def check(
    folder: Annotated[
        Path | None, typer.Argument(help="The folder of a site; left out: site/ under $FARM_HOME.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Check that every link of a built site leads somewhere and that nothing is loaded from elsewhere.

    Exit code: 0 no fault; 1 faults, one a line.

    Examples:
      farm site check
      farm site check public
    """
    from orchestrator.site.check import faults_of  # noqa: PLC0415  # parsers, which no help needs

    site = folder or FarmHome.from_environment().site
    faults = list(faults_of(site))
    said = [*faults, f"{site}: {counted(len(faults), 'fault')}"]
    output.answer({"site": str(site), "faults": faults}, said, as_json)
    return SOME_FAILED if faults else OK


VERBS = {"build": build, "serve": serve, "check": check}
