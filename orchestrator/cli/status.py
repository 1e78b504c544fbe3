"""`farm status`: the state of the farm and the progress of its campaigns."""

from collections.abc import Iterator
from typing import Annotated

import typer

from orchestrator.cli import output
from orchestrator.cli.agents import agent_json
from orchestrator.cli.progress import outcome
from orchestrator.cli.verb import OK, Json, Verbose, open_farm
from orchestrator.cli.watch import watch
from orchestrator.config.clock import utc_now
from orchestrator.errors import UsageError
from orchestrator.farm.reading.cells import Overview
from orchestrator.farm.remote.farm import AnyFarm
from orchestrator.manifest.labels import has_label, label_text
from orchestrator.policy.lifecycle import OPEN
from orchestrator.results.comparison import summary
from orchestrator.results.export import campaign_json, result_json
from orchestrator.results.records import CampaignRecord


def status(
    campaign: Annotated[str | None, typer.Argument(help="A campaign; left out: all of them.")] = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="WORD|NAME=VALUE", help="Only campaigns with this label.")
    ] = None,
    watched: Annotated[
        bool, typer.Option("--watch", "-w", help="Watch CAMPAIGN, or the last one, until it ends.")
    ] = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Show the state of the farm and the progress of campaigns.

    With CAMPAIGN, each of its cells.
    With --watch, its devices and cells as they go on, and its results at the end; without a terminal, or with
    --json, one line per event. Ctrl-C ends the watching, not the campaign.
    Exit code: 0; with --watch 1 where some cells failed, gave wrong output or were cancelled.

    Examples:
      farm status
      farm status demo
      farm status --watch nightly
    """
    if verbose and not watched:
        raise UsageError(
            "--verbose goes with --watch: it is of the results at the end; else: farm results -v"
        )
    with open_farm() as farm:
        if campaign is not None and label is not None:
            raise UsageError(f"--label chooses among all campaigns; leave out {campaign!r}, or --label")
        if watched:
            ref = campaign if label is None else f"label:{label}"
            return watch(farm, ref, as_json, verbose=verbose)
        return _campaigns(farm, label, as_json) if campaign is None else _cells(farm, campaign, as_json)


def _campaigns(farm: AnyFarm, label: str | None, as_json: bool) -> int:
    records = [r for r in farm.reading.campaigns() if label is None or has_label(r.labels, label)]
    overview = farm.reading.overview()
    if as_json:
        output.emit_json(
            _overview_json(overview) | {"campaigns": [campaign_json(record) for record in records]}
        )
        return OK
    for text in _overview(overview):
        output.line(text)
    if not records:
        none = "no campaigns yet; submit one: farm submit my.tflite"
        output.line(none if label is None else f"no campaign has the label {label!r}")
        return OK
    labels = ["labels"] if any(record.labels for record in records) else []
    output.table(
        ("campaign", "name", "submitted (UTC)", "by", "level", "cells", *labels),
        [
            (
                r.campaign_id, r.name, f"{r.submitted_at:%Y-%m-%d %H:%M}", r.submitted_by, r.level,
                _counts(r), *(label_text(r.labels) for _ in labels),
            )
            for r in records
        ],
    )  # fmt: skip
    return OK


def _overview(overview: Overview) -> Iterator[str]:
    open_cells = ", ".join(f"{count} {state}" for state, count in overview.cells.items() if count)
    yield f"cells: {open_cells or 'none waiting or running'}"
    devices = ", ".join(f"{count} {state}" for state, count in overview.devices.items())
    yield f"devices: {devices or 'none known yet'}"
    yield f"scheduler: {overview.scheduler}"
    if overview.broker != "none":
        yield f"agents: {len(overview.agents)}; broker: {overview.broker}; database: {overview.database}"
    for agent in overview.agents:
        if agent.refused:
            yield f"agent {agent.agent_id} is refused: {agent.refused}"


def _overview_json(overview: Overview) -> dict[str, object]:
    now = utc_now()
    return {
        "cells": dict(overview.cells),
        "devices": dict(overview.devices),
        "agents": [agent_json(agent, now, overview.suspect_s) for agent in overview.agents],
        "scheduler": {"running": overview.schedules, "state": overview.scheduler},
        "broker": overview.broker,
        "database": overview.database,
    }


def _cells(farm: AnyFarm, ref: str, as_json: bool) -> int:
    record = farm.reading.campaign(ref)
    cells = farm.reading.cells(record.campaign_id)
    if as_json:
        rows = [
            {"cell": c.cell_id, "reused_from": c.reused_from, "attempts": len(c.attempts)} | result_json(c)
            for c in cells
        ]
        output.emit_json(campaign_json(record) | {"cells": rows})
        return OK
    output.table(
        ("cell", "model", "delegate", "device", "status", "result"),
        [
            (c.cell_id, c.model, c.delegate, c.device, c.state, "" if c.status in OPEN else outcome(c))
            for c in cells
        ],
    )
    labels = f" [{label_text(record.labels)}]" if record.labels else ""
    output.line(f"campaign {record.campaign_id} ({record.name}){labels}: {summary(cells)}")
    return OK


def _counts(record: CampaignRecord) -> str:
    counts = ", ".join(f"{count} {state}" for state, count in record.counts.items() if count)
    return f"{counts} (paused)" if record.paused else counts
