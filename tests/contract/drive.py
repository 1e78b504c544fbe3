"""A process that submits a campaign and runs it to its end, as `farm submit` does.

`python drive.py HOME CAMPAIGN-AS-JSON`: one JSON line per event. Exit code 130 after Ctrl-C.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.farm import Farm
from orchestrator.results.events import FarmEvent
from tests.contract.lab import agent_command
from tests.orchestrator.asked import asked, model_files


def main() -> int:
    try:
        submit_and_run(FarmHome(Path(sys.argv[1])), json.loads(sys.argv[2]))
    except KeyboardInterrupt:
        return 130
    return 0


def submit_and_run(home: FarmHome, wanted: dict[str, Any]) -> None:
    campaign = asked(tuple(wanted.pop("models")), wanted.pop("delegates"), **wanted)
    with Farm.open(home, lab=LabConfig.load(home), command=agent_command(home)) as farm:
        plan = farm.submission.plan(campaign, model_files(*(model.id for model in campaign.models)))
        submitted = farm.submission.submit(plan)
        say("submitted", campaign=submitted.campaign_id)
        farm.running.run(submitted, tell)


def tell(event: FarmEvent) -> None:
    cell = event.cell
    say(event.kind, cell=cell.cell_id, model=cell.model, delegate=cell.delegate, status=cell.status)


def say(kind: str, **facts: str) -> None:
    sys.stdout.write(json.dumps({"kind": kind, **facts}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
