"""The production programs as the fault tests start them: `entry.py farm ...`, `entry.py farm-agent ...`.

Everything is the product's own but the runner, which `runner.py` replaces where `FAULT_DEVICES` is set.
`FAULT_RUNNER` names another. `FAULT_PROTOCOL` makes the program speak another protocol version.
`FAULT_MUTATION` takes one protection away (`mutations.py`), to prove that the scenarios see it.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.faults import mutations
from tests.faults.runner import DEVICES_VARIABLE

PROTOCOL_VARIABLE = "FAULT_PROTOCOL"
FAKE_RUNNER = (
    sys.executable,
    os.environ.get("FAULT_RUNNER") or str(Path(__file__).with_name("runner.py")),
)


DOORS = {"farm": "orchestrator.cli", "farm-agent": "agent.cli", "agent.link": "agent.link.__main__"}


def main() -> None:
    program = sys.argv.pop(1)
    sys.argv[0] = program
    if DEVICES_VARIABLE in os.environ:
        devices = import_module("agent.devices")
        vars(devices)["RUNNER_COMMAND"] = FAKE_RUNNER
    if PROTOCOL_VARIABLE in os.environ:
        vars(import_module("agent.wire.messages"))["PROTOCOL_VERSION"] = int(os.environ[PROTOCOL_VARIABLE])
    mutations.apply(os.environ.get(mutations.VARIABLE, ""))
    door = DOORS[program]
    import_module(door).main()


if __name__ == "__main__":
    main()
