"""`farm resume`: let a paused campaign go on."""

from __future__ import annotations

from orchestrator.cli.verb import CampaignRef, Json, open_farm


def resume(ref: CampaignRef, as_json: Json = False) -> int:
    """Let a paused campaign go on."""
    from orchestrator.cli import output

    with open_farm() as farm:
        count = farm.steering.resume(ref)
    return output.answer(
        {"ref": ref, "paused": False, "waiting": count}, f"{ref} goes on; {output.cells(count)} wait", as_json
    )
