"""`farm cancel`: end a campaign or one cell."""

from __future__ import annotations

from orchestrator.cli.verb import Json, Ref, open_farm


def cancel(ref: Ref, as_json: Json = False) -> int:
    """Cancel a campaign or one cell, running or not.

    Finished cells stay, and so do the results of cells that are measured again. A cell under way is done with
    the blocks that it has finished; farm refine, or the next farm submit, adds to them.
    """
    from orchestrator.cli import output

    with open_farm() as farm:
        count = farm.steering.cancel(ref)
    ended = "" if count else "; all have ended already"
    return output.answer(
        {"ref": ref, "cancelled": count}, f"{ref}: {output.cells(count)} cancelled{ended}", as_json
    )
