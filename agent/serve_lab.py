"""An agent of a lab: the daemon of a single machine, with a link to the broker instead of a parent."""

import logging
import sys
from pathlib import Path

from agent.attached.hosts import attached_devices
from agent.attempt.lease import lease_folder
from agent.config import AgentConfig, LinkTimes, memory_limit
from agent.daemon import serve_over
from agent.link.cache import budget_from
from agent.machine.wheels import wheel_list
from agent.processes.sandbox.boundary import SandboxSettings
from agent.transport.process import LinkProcess
from agent.wire.credentials import Credentials

log = logging.getLogger(__name__)


def serve_lab(state: Path) -> int:
    """Serve until SIGTERM. Returns the exit code."""
    try:
        times, memory_limit_bytes = LinkTimes.from_environment(), memory_limit()
        sandbox, wheels = SandboxSettings.from_environment(), wheel_list()
        attached = attached_devices()
        budget_from()  # the link reads it: a mistake in it is reported here, at the start
    except ValueError as error:
        log.error("%s", error)
        return 1
    try:
        agent_id = Credentials.read(state).agent_id
        link = state / "link"
        link.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        log.error(
            "this host is not enrolled: %s; set FARM_ENROL_TOKEN and run: farm-agent enrol --server URL",
            error,
        )
        return 1
    config = AgentConfig(
        agent_id=agent_id,
        state=state,
        store=state / "store",
        leases=lease_folder(),
        heartbeat_s=times.heartbeat_s,
        device_prefix=f"{agent_id}.",
        resend_s=times.resend_s,
        memory_limit_bytes=memory_limit_bytes,
        sandbox=sandbox,
        wheel_list=wheels,
        attached=attached,
    )
    # -P: no module of the working folder is taken for one of ours.
    command = [sys.executable, "-P", "-m", "agent.link", "--state", str(state)]
    command += ["--watchdog", f"{times.watchdog_s:g}"]
    log.info("agent %s serves its lab; its state folder is %s", agent_id, state)
    return serve_over(config, lambda: LinkProcess(command, link, times.watchdog_s, agent_id))
