"""The boundary around one runner: entered between fork and exec, inherited by all that the runner starts."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from agent.processes.sandbox import kernel, landlock, namespaces, seccomp, view
from agent.processes.sandbox.limits import (
    USERS,
    USERS_VARIABLE,
    Limits,
    Users,
    limits_of_host,
    most_processes,
)
from agent.processes.sandbox.reach import Reach, Rule
from agent.processes.sandbox.survey import Survey, survey
from agent.wire.messages import SANDBOX_FACT, SANDBOX_OFF, SANDBOX_WITHOUT_FACT

SWITCH_VARIABLE: Final = "FARM_RUNNER_SANDBOX"
READ_VARIABLE: Final = "FARM_RUNNER_READ"
WRITE_VARIABLE: Final = "FARM_RUNNER_WRITE"
TEMPORARY_FOLDER: Final = "tmp"
_OFF_TEXT: Final = (
    f"{SANDBOX_OFF} ({SWITCH_VARIABLE}=off): a model can read, change and send whatever this user can"
)


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """The user's choice. `read`, `write`: further files and folders for runners, such as a delegate's.
    `users`: each attempt has one of them where the agent is root; None for the agent's own.
    """

    on: bool = True
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    users: Users | None = USERS

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "SandboxSettings":
        """Read the settings. Raises `ValueError` naming the variable."""
        switch = environment.get(SWITCH_VARIABLE) or "on"
        if switch not in ("on", "off"):
            raise ValueError(f"{SWITCH_VARIABLE}: {switch!r} is neither on nor off")
        if switch == "on" and sys.platform == "darwin":
            raise ValueError(
                f"{SWITCH_VARIABLE}: macOS has none of the parts of which Linux's sandbox is made, so that "
                f"models run without one; if you trust yours, set {SWITCH_VARIABLE}=off"
            )
        chosen = environment.get(USERS_VARIABLE)
        return cls(
            switch == "on",
            _paths(environment, READ_VARIABLE),
            _paths(environment, WRITE_VARIABLE),
            Users.parsed(chosen) if chosen else USERS,
        )

    def facts(self) -> dict[str, str]:
        """Return what the devices, their results and `farm doctor` say of the sandbox."""
        if not self.on:
            return {SANDBOX_FACT: _OFF_TEXT}
        found = survey(self.users)
        facts = {SANDBOX_FACT: ", ".join(_described(found, self.users))}
        return facts | ({SANDBOX_WITHOUT_FACT: "; ".join(found.without)} if found.without else {})


SANDBOXED: Final = SandboxSettings()
"""What applies where the user chose nothing."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """Everything about one runner's sandbox that is decided before it is forked."""

    found: Survey
    limits: Limits
    rules: tuple[Rule, ...]
    temporary: Path | None
    user: int | None = None

    def enter(self) -> None:
        """Close the boundary around this process. Raises `OSError` once the reason is in the log."""
        with kernel.failure_in_log():
            self._close()

    def _close(self) -> None:
        # Namespaces and capabilities need rights that the steps after them take away.
        if self.found.namespaces is not None:
            arrange = None if self.user is None else partial(view.enter, self.rules, self.user)
            namespaces.enter(self.found.namespaces, self.temporary, arrange)
        self.limits.enter(os.getuid() if self.user is None else self.user)
        kernel.drop_capabilities(self.user, _groups(self.rules))
        kernel.forbid_new_privileges()
        if self.found.landlock_abi:
            landlock.restrict(self.rules, self.found.landlock_abi)
        # Last: the filter's list has no call that mounts, changes the user or drops capabilities.
        if self.found.seccomp:
            seccomp.restrict()


def boundary_for(reach: Reach, folder: Path, users: Users | None = None) -> Boundary:
    """Return the boundary of a runner that works in `folder`, which has a folder `TEMPORARY_FOLDER`, as one
    of `users` where that is possible. Raises `OSError` where none of them is free.
    """
    found = survey(users)
    user = users.free() if users is not None and found.own_user else None
    # A farm that lives in /tmp itself keeps it visible; Landlock closes all of it but the attempt's files.
    tmp = Path("/tmp")  # noqa: S108  # the place that programs know
    temporary = folder / TEMPORARY_FOLDER if found.namespaces is not None and not reach.needs(tmp) else None
    # Root may write the kernel's settings in /proc unless it sees a /proc of its own; others never may.
    changes_proc = os.geteuid() != 0 or found.namespaces is namespaces.Namespaces.DIRECT
    rules = reach.rules(
        own_tmp=temporary is not None, own_shm=found.namespaces is not None, changes_proc=changes_proc
    )
    return Boundary(found, limits_of_host(folder), tuple(rules), temporary, user)


def _groups(rules: tuple[Rule, ...]) -> list[int]:
    """Return the groups of the devices, beside root's: by them a user opens a GPU."""
    nodes = (path for path, rights in rules if rights == landlock.DEVICE and not path.is_dir())
    return sorted({path.stat().st_gid for path in nodes} - {0})


def _described(found: Survey, users: Users | None) -> list[str]:
    described = [f"namespaces of network, keys and mounts ({found.namespaces})"] if found.namespaces else []
    if found.landlock_abi:
        described.append(f"Landlock {found.landlock_abi}")
    if found.seccomp:
        described.append("seccomp")
    if found.counts_processes:
        described.append(f"at most {most_processes()} processes")
    return [
        *described,
        "no capabilities",
        "no new privileges",
        "limits on files, data and core",
        f"user: each attempt's own ({users})" if found.own_user else "user: the agent's",
    ]


def _paths(environment: Mapping[str, str], variable: str) -> tuple[Path, ...]:
    found = tuple(Path(word) for word in environment.get(variable, "").split(":") if word)
    for path in found:
        if not path.is_absolute() or path == Path("/"):
            raise ValueError(
                f"{variable}: {str(path)!r} is not the absolute path of a file or a folder below /"
            )
    return found
