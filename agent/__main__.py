"""`python -m agent --embedded --fd N --state DIR --store DIR`: the agent as a child of an orchestrator."""

import argparse
import sys
from pathlib import Path

from agent.attached.hosts import attached_devices
from agent.attempt.lease import lease_folder
from agent.config import LOG_PREFIX, AgentConfig, memory_limit
from agent.daemon import serve
from agent.machine.wheels import wheel_list
from agent.processes.sandbox.boundary import SandboxSettings
from agent.wire.logs import LogFormat, log_to_stderr
from agent.wire.private_folder import keep_new_files_private


def main(arguments: list[str] | None = None) -> int:
    """Parse the arguments and serve. Returns the exit code."""
    parser = _parser()
    given = parser.parse_args(arguments)
    keep_new_files_private()
    log_to_stderr(LogFormat.TEXT, prefix=LOG_PREFIX, loggers=("agent",))
    try:
        memory_limit_bytes, sandbox = memory_limit(), SandboxSettings.from_environment()
        wheels, attached = wheel_list(), attached_devices()
    except ValueError as error:
        parser.error(str(error))
    config = AgentConfig(
        agent_id=given.agent_id,
        state=given.state,
        store=given.store,
        leases=given.leases or lease_folder(),
        heartbeat_s=given.heartbeat,
        memory_limit_bytes=memory_limit_bytes,
        sandbox=sandbox,
        wheel_list=wheels,
        attached=attached,
    )
    return serve(config, given.fd)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m agent", description=__doc__)
    parser.add_argument("--embedded", action="store_true", required=True, help="serve the parent process")
    parser.add_argument("--fd", type=int, required=True, help="connected socket to the orchestrator")
    parser.add_argument("--state", type=Path, required=True, help="folder for journal, work and references")
    parser.add_argument("--store", type=Path, required=True, help="content-addressed store")
    parser.add_argument("--agent-id", default="embedded", help="name in the farm (default: embedded)")
    parser.add_argument("--leases", type=Path, help="folder of the device locks (default: host-wide)")
    parser.add_argument("--heartbeat", type=float, default=1.0, help="seconds between heartbeats")
    return parser


if __name__ == "__main__":
    sys.exit(main())
