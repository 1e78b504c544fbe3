"""Submits a campaign of made-up models, asked for as JSON by `FaultLab.start_submitting`; prints its id.

The models are a few bytes each, stored as any other artifact; the farm never looks into them.
"""

from __future__ import annotations

import json
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.errors import FarmError
from orchestrator.farm import Farm
from orchestrator.sources.store import Store
from tests.orchestrator.asked import ModelOnDisk, asked


def main() -> int:
    """Run as the `farm` command does: an expected failure is one line and an exit code."""
    try:
        submit(json.loads(sys.argv[1]))
    except FarmError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def submit(wanted: dict[str, Any]) -> None:
    home = FarmHome.from_environment()
    store = Store(home.store)
    models = []
    for name in wanted["models"]:
        stored = store.put(BytesIO(name.encode().ljust(wanted["model_bytes"], b".")), name)
        models.append(ModelOnDisk(name, stored.sha256, stored.size_bytes))
    campaign = asked(
        tuple(wanted["models"]),
        wanted["delegates"],
        name=wanted["name"],
        soft_limit_s=wanted["soft_limit_s"],
        reuse="never",
    )
    with Farm.open(home, lab=LabConfig.load(home)) as farm:
        sys.stdout.write(farm.submission.submit(farm.submission.plan(campaign, models)).campaign_id)


if __name__ == "__main__":
    sys.exit(main())
