"""The environment of every process that an agent starts (agent/wire/environment.py has the lists)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from agent.wire.environment import LOADER, PYTHON, RUNNER, SYSTEM, chosen

_LINK: Final = (
    "SSL_CERT_FILE", "SSL_CERT_DIR",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
    "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "FARM_HEARTBEAT_S", "FARM_WATCHDOG_S", "FARM_RESEND_S", "FARM_AGENT_CACHE_BYTES", "FARM_FAILPOINT",
)  # fmt: skip
"""What the link needs besides, which alone uses the network: certificates, proxies, its own settings. Its
secrets are in the state folder and never in a variable."""


def for_runner(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a runner, of the processes that it starts, and of the probe."""
    return chosen(inherited, RUNNER)


def for_link(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of the process that speaks with the broker and the endpoint."""
    return chosen(inherited, (*SYSTEM, *LOADER, *PYTHON, *_LINK))
