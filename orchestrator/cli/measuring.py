"""Follows a campaign on the terminal to its end, and says how it goes on where a user stops that."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.farm import Farm
    from orchestrator.farm.remote import RemoteFarm
    from orchestrator.farm.submission import Submitted


def run_shown(farm: Farm | RemoteFarm, submitted: Submitted) -> None:
    """Measure a campaign to its end, with its progress on the terminal."""
    from orchestrator.cli.output import StatusLine
    from orchestrator.cli.progress import Progress

    with StatusLine() as status:
        farm.running.run(submitted, Progress(status), farm.wait(status.event))


def say_how_to_go_on(farm: Farm | RemoteFarm, campaign_id: str) -> None:
    """Tell a user who stopped a command how its campaign goes on."""
    from orchestrator.cli import output
    from orchestrator.cli.stopping import same_command

    if farm.schedules_elsewhere:
        output.note(f"stopped watching; the campaign goes on. Watch it: farm watch {campaign_id}")
        output.note(f"  end it: farm cancel {campaign_id}")
    else:
        output.note("stopped; finished cells and blocks are kept. Continue with:")
        output.note(f"  {same_command(sys.argv, os.environ)}")
