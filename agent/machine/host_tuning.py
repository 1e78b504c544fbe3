"""Settings that hold a host's clocks steady: made by the administrator's order, recorded, and put back.

The record lies in `/run`, which a reboot empties: the kernel's own settings are gone then as well. It is
written before the first change, so that whatever ends this process leaves a host that `restore` can put back.
"""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.machine.cgroups import ROOT, text_of
from runtime.common.durable import write_atomically

RECORD: Final = "run/farm-tuning.json"
"""What was set before, by setting: a path below the root, which everybody may read."""

_CPUS: Final = "sys/devices/system/cpu"
_NVIDIA: Final = "nvidia-smi"
_NVIDIA_S: Final = 60.0
"""Seconds that NVIDIA's tool may take: one or two, and up to half a minute where it loads the driver."""

_ENVIRONMENT: Final = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
"""The environment of that tool, which root runs."""


class TuningError(Exception):
    """A setting cannot be made here; everything is as it was before."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The settings to hold; None leaves a setting alone.

    `governor`: the frequency governor of every CPU. `turbo`: whether clocks may exceed the nominal one.
    `gpu_clocks`: lowest and highest MHz of every NVIDIA GPU. `gpu_persistence`: whether their driver stays
    loaded while nobody uses it.
    """

    governor: str | None = None
    turbo: bool | None = None
    gpu_clocks: tuple[int, int] | None = None
    gpu_persistence: bool | None = None


Run = Callable[[Sequence[str]], str]
"""Runs a program and returns what it prints. Raises `TuningError`."""


def apply(wanted: Wanted, root: Path = ROOT, run: Run | None = None) -> dict[str, str]:
    """Make the settings, and return what was changed from what, by setting.

    What an earlier call has recorded stays the state to go back to. Raises `TuningError`, behind which
    everything is as this call found it.
    """
    run = run or _run
    before = _recorded(root)
    found = _present(wanted, root, run)
    # What an earlier call has found was there before any change, and is what `restore` goes back to.
    _write_record(root, {**found, **before})
    changed: dict[str, str] = {}
    try:
        for setting, value in _asked(wanted, found).items():
            if found[setting] != value:
                # Noted first: a setting that fails half-way is put back with the others.
                changed[setting] = found[setting]
                _set(setting, value, root, run)
    except (OSError, TuningError) as error:
        for setting, value in changed.items():
            # The one that failed may refuse its old value as well.
            with suppress(OSError, TuningError):
                _set(setting, value, root, run)
        _write_record(root, before)
        raise TuningError(str(error)) from error
    return changed


def restore(root: Path = ROOT, run: Run | None = None) -> dict[str, str]:
    """Put back what `apply` has recorded, and return it; nothing where nothing is recorded.

    Raises `TuningError` where a setting cannot be put back; the record is kept then.
    """
    before = _recorded(root)
    faults = []
    for setting, value in before.items():
        try:
            _set(setting, value, root, run or _run)
        except (OSError, TuningError) as error:
            faults.append(f"{setting}: {error}")
    if faults:
        raise TuningError(f"not put back: {'; '.join(faults)}")
    (root / RECORD).unlink(missing_ok=True)
    return before


def in_force(root: Path = ROOT) -> str:
    """In words, what is set otherwise than it was found: `governor was schedutil`; empty where nothing is."""
    groups: dict[str, set[str]] = {}
    for setting, value in _recorded(root).items():
        # A path of the kernel's, or what a GPU is told and its id.
        name = setting.partition(" ")[0].rpartition("/")[2].removeprefix("scaling_")
        groups.setdefault(name, set()).add(value)
    return ", ".join(f"{name} was {' and '.join(sorted(values))}" for name, values in sorted(groups.items()))


def _present(wanted: Wanted, root: Path, run: Run) -> dict[str, str]:
    """Return the present value of every requested setting. Raises `TuningError` for an unknown one."""
    found: dict[str, str] = {}
    if wanted.governor is not None:
        paths = sorted((root / _CPUS).glob("cpu[0-9]*/cpufreq/scaling_governor"))
        if not paths:
            raise TuningError("this kernel has no frequency governor, as in most virtual machines")
        for path in paths:
            # A kernel that lists none tells by the write alone.
            offered = text_of(path.with_name("scaling_available_governors")).split()
            if offered and wanted.governor not in offered:
                raise TuningError(f"no governor {wanted.governor!r}; there are {', '.join(offered)}")
            found[str(path.relative_to(root))] = text_of(path).strip()
    if wanted.turbo is not None:
        path = _turbo_switch(root)
        found[str(path.relative_to(root))] = text_of(path).strip()
    if wanted.gpu_clocks is not None or wanted.gpu_persistence is not None:
        for line in run([_NVIDIA, "--query-gpu=uuid,persistence_mode", "--format=csv,noheader"]).splitlines():
            uuid, _, mode = line.partition(",")
            if wanted.gpu_persistence is not None:
                found[f"persistence {uuid.strip()}"] = mode.strip()
            if wanted.gpu_clocks is not None:
                # The tool tells no range that is locked; what it puts back is the driver's own.
                found[f"clocks {uuid.strip()}"] = "free"
    return found


def _turbo_switch(root: Path) -> Path:
    for name in ("intel_pstate/no_turbo", "cpufreq/boost"):
        if (path := root / _CPUS / name).exists():
            return path
    raise TuningError("this kernel has no switch for turbo")


def _asked(wanted: Wanted, found: Mapping[str, str]) -> dict[str, str]:
    """Return the value that each setting shall get."""
    asked: dict[str, str] = {}
    for setting in found:
        if setting.endswith("scaling_governor"):
            asked[setting] = str(wanted.governor)
        elif setting.endswith("no_turbo"):
            asked[setting] = "0" if wanted.turbo else "1"
        elif setting.endswith("boost"):
            asked[setting] = "1" if wanted.turbo else "0"
        elif setting.startswith("persistence "):
            asked[setting] = "Enabled" if wanted.gpu_persistence else "Disabled"
        elif wanted.gpu_clocks is not None:
            asked[setting] = f"{wanted.gpu_clocks[0]},{wanted.gpu_clocks[1]}"
    return asked


def _set(setting: str, value: str, root: Path, run: Run) -> None:
    kind, _, uuid = setting.partition(" ")
    if kind == "persistence":
        run([_NVIDIA, "-i", uuid, "-pm", "1" if value == "Enabled" else "0"])
    elif kind == "clocks":
        run([_NVIDIA, "-i", uuid, *(["-rgc"] if value == "free" else ["-lgc", value])])
    else:
        (root / setting).write_text(value)


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - NVIDIA's tool, with arguments that are checked numbers and names
            command, env=_ENVIRONMENT, capture_output=True, text=True, timeout=_NVIDIA_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TuningError(f"{command[0]}: {error}") from error
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
        raise TuningError(f"{' '.join(command)}: {words[-1]}")
    return done.stdout


def _recorded(root: Path) -> dict[str, str]:
    text = text_of(root / RECORD)
    return {str(name): str(value) for name, value in json.loads(text).items()} if text else {}


def _write_record(root: Path, settings: Mapping[str, str]) -> None:
    """Replace the record in one step, on disk before the first setting changes."""
    path = root / RECORD
    if not settings:
        path.unlink(missing_ok=True)
        return
    write_atomically(path, json.dumps(settings, indent=1).encode(), 0o644)
