"""Records the system calls that each delegate makes, of which the runner's filter allows no others.

python -m benchmarks.system_calls [--models ID ...] [--delegates KIND ...] [--out FILE]

Every delegate of this machine measures each model in an attempt of the product's own agent, without the
sandbox and under strace; the probe of its devices runs so too. The filter of system calls reads `--out`
(`agent/processes/sandbox/calls.py`). A delegate that this machine lacks keeps its recorded list.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from agent.devices import RUNNER_COMMAND
from agent.processes.sandbox.calls import RECORDED
from agent.wire.messages import Status
from benchmarks.output import parser
from benchmarks.sandbox import MODELS, stored
from runtime.delegates.registry import delegate_names
from tests.agent.embedded_agent import EmbeddedAgent, job

PROBE: Final = "probe"
_CALL: Final = re.compile(r"^(?:\d+ +)?(?:<\.\.\. )?([a-z_]\w*)(?:\(| resumed)")
"""A line of strace: with the id of its process, and `<... name resumed>` where another's came between."""
_TRACED: Final = ("strace", "--follow-forks", "--quiet=all", "--string-limit=0")


def main() -> None:
    """Record, and write the lists."""
    given = _options()
    if shutil.which(_TRACED[0]) is None:
        sys.exit("strace is missing: apt-get install strace")
    found = json.loads(given.out.read_text())
    with tempfile.TemporaryDirectory(prefix="farm-calls-") as name:
        found |= recorded(Path(name), given.models, set(given.delegates))
    given.out.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")
    for who, calls in found.items():
        print(f"{who}: {len(calls)} calls")


def recorded(folder: Path, models: list[str], kinds: set[str]) -> dict[str, list[str]]:
    """Return the names of the calls by kind of delegate, and those of the probe."""
    trace = folder / "trace"
    traced = [*_TRACED, f"--output={trace}", *RUNNER_COMMAND]
    subprocess.run([*traced, "--probe"], stdout=subprocess.DEVNULL, check=True)
    found = {PROBE: _calls(trace)}
    agent = EmbeddedAgent(folder, traced, sandbox={"on": False}, patience_s=600)
    try:
        for device in agent.hello.devices:
            for delegate in kinds & set(device.delegates):
                for model_id, model in stored(folder / "store", models).items():
                    spec = job(model, delegate, device.device_id, model_id=model_id)
                    result = agent.run(spec)
                    print(f"{delegate}, {model_id}: {result.status} {result.reason or ''}")
                    # One that finds no device has loaded its drivers.
                    if result.status in (Status.DONE, Status.UNSUPPORTED):
                        # Each start of strace empties its file, so a run is read before the next one.
                        found[delegate] = found.get(delegate, set()) | _calls(trace)
    finally:
        agent.close()
    return {who: sorted(calls) for who, calls in found.items()}


def _calls(trace: Path) -> set[str]:
    with trace.open(errors="replace") as lines:
        return {match[1] for line in lines if (match := _CALL.match(line))}


def _options() -> argparse.Namespace:
    options = parser(__doc__, RECORDED)
    options.add_argument("--models", nargs="+", default=list(MODELS))
    options.add_argument("--delegates", nargs="+", default=list(delegate_names()))
    return options.parse_args()


if __name__ == "__main__":
    main()
