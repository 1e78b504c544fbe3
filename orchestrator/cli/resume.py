"""`farm resume`: continue a paused campaign."""

from __future__ import annotations

from orchestrator.cli.verb import CampaignRef, Json, open_farm


def resume(ref: CampaignRef, as_json: Json = False) -> int:
    """Continue a paused campaign."""
    from orchestrator.cli import output

    with open_farm() as farm:
        count = farm.steering.resume(ref)
    return output.answer(
        {"ref": ref, "paused": False, "waiting": count},
        f"{ref} continues; {output.cells(count)} wait",
        as_json,
    )
