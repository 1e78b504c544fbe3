"""Writes the cells of a campaign as shards: compressed rows, a hundred to a file, which `cell.html`
draws one by one, and `compare.html` sets against each other.

Every cell is in a shard, so that its address there stays the same. Pages of its own, with drawings and raw
samples, only a cell of the newest campaigns has.
"""

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.wire.measurement import baseline_id
from orchestrator.results import format as text
from orchestrator.results.metrics import P50
from orchestrator.results.records import CampaignRecord, ComparedCell, void_reason
from orchestrator.results.speedups import counted_times
from orchestrator.site import links

CELLS = 100
"""Cells of a shard. Chosen: about 15 kB compressed, and as much as a list on a page should have."""

_CALL = 'shard("', '");\n'
"""Around the packed rows: a call of the function that `templates/shards.js` defines."""


def shards(
    campaign: CampaignRecord, cells: Sequence[ComparedCell], measurements: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield name and content of each shard. `measurements`: the stored ones as JSON text, by cell id."""
    for number, begin in enumerate(range(0, len(cells), CELLS)):
        rows = (_row(campaign, cell, measurements.get(cell.cell_id)) for cell in cells[begin : begin + CELLS])
        yield links.shard_name(campaign.campaign_id, number), packed(f"{{{','.join(rows)}}}")


def packed(written: str) -> str:
    """Return the script that hands a JSON text to the page that asked for it."""
    # `join` sets the text between the two halves of the call.
    return base64.b64encode(zlib.compress(written.encode("utf-8", "backslashreplace"))).decode().join(_CALL)


def unpacked(content: str) -> Any:
    """Return what such a script holds. Raises `ValueError` for a damaged one."""
    before, after = _CALL
    try:
        found = base64.b64decode(content.removeprefix(before).removesuffix(after), validate=True)
        return json.loads(zlib.decompress(found))
    except zlib.error as error:
        raise ValueError(str(error)) from error


def read_shard(content: str) -> dict[str, Any]:
    """Return the rows of a shard by the ends of their addresses. Raises `ValueError` for a damaged one."""
    found = unpacked(content)
    if not isinstance(found, dict):
        raise ValueError("it holds no rows")
    return found


def _row(campaign: CampaignRecord, cell: ComparedCell, measurement: str | None) -> str:
    """Return a member of the shard's object. The measurement is put in as the text that it is stored as: to
    read and write it again would take as long as all else of a shard.
    """
    figures = cell.measurement
    p50 = None if figures is None else figures.latency_ms.p50
    reason = cell.reason
    # templates/cell.js and compare.js read these names.
    row = {
        "cell": cell.cell_id,
        "campaign": [campaign.name, links.campaign_page(campaign.campaign_id)],
        "model": [cell.model, links.history_page(cell.model)],
        "delegate": cell.delegate,
        "arm": baseline_id(cell.delegate_kind, cell.delegate_options),
        "device": [cell.device, cell.device_name, links.device_page(cell.device) if cell.environment else ""],
        "status": cell.status,
        "p50": "" if p50 is None else f"{P50.text(p50)} {P50.unit}",
        "reason": cell.kept or ("" if reason is None else f"{reason.code}: {reason.text}"),
        "counted": counted_times(cell) is not None,
        "not compared": cell.struck_as if cell.struck_out else void_reason(cell) or "",
        "finished": text.moment(cell.finished_at),
        "asked": {
            "model": cell.model,
            "level": cell.level,
            "delegate kind": cell.delegate_kind,
            **{f"option {name}": value for name, value in sorted(cell.delegate_options.items())},
            "model sha256": cell.model_sha256,
            "model bytes": cell.model_bytes,
            **({} if cell.reused_from is None else {"reused from": cell.reused_from}),
        },
        "environment": cell.environment,
    }
    written = json.dumps(row, separators=(",", ":"), ensure_ascii=False)
    measured = "" if measurement is None else f',"measurement":{measurement}'
    # Before the brace that ends the row, which is written anew.
    return f"{json.dumps(links.slug(cell.cell_id))}:{written[:-1]}{measured}}}"
