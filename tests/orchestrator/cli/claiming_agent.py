"""The agent of a farm of one machine, with a runner that only claims to measure.

`python -m tests.orchestrator.cli.claiming_agent RUNNER ANSWER ARGUMENTS...`: the script that is its runner,
the file with what its probe answers, and what `python -m agent` takes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from agent.__main__ import _parser
from agent.config import AgentConfig
from agent.daemon import serve
from agent.processes.sandbox.boundary import SandboxSettings


def main() -> int:
    """Serve the farm; return the exit code."""
    runner, answer, *arguments = sys.argv[1:]
    given = _parser().parse_args(arguments)
    state: Path = given.state
    return serve(
        AgentConfig(
            agent_id="embedded", state=state, store=given.store, leases=state / "leases",
            runner_command=[sys.executable, "-P", runner], sandbox=SandboxSettings(on=False),
            probe_command=["/bin/sh", "-c", 'cat "$0"', answer],
        ),
        given.fd,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
