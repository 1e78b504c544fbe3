"""Asks attached devices what they are, and what their sensors say."""

import hashlib
import re
import shlex
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from agent.attached.hosts import Attached, OverSsh
from agent.attached.remote import LostError, RefusedError, Remote
from agent.wire.messages import SANDBOX_FACT, Device
from runtime.common.benchmark_log import TOOL
from runtime.common.evaluation_log import CLASSIFICATION, DETECTION, INFERENCE_DIFF

LIST_S: Final = 20.0
"""Seconds that a device may take to describe itself: twice what a connection may. Larger lets one that hangs
delay the agent's start by so much."""

EVALUATION: Final = (INFERENCE_DIFF, CLASSIFICATION, DETECTION)
"""LiteRT's evaluation tools that a device may have beside `benchmark_model`."""

_NOT_THERE: Final = 4
"""Exit code of `_DESCRIBE` where the tool cannot be run."""

_DESCRIBE: Final = """\
[ -x {tool} ] || {{ echo {tool} is not there, or may not be run; exit 4; }}
echo "machine=$(uname -m)"
echo "kernel=$(uname -s) $(uname -r)"
echo "cpus=$(nproc 2>/dev/null || grep -c ^processor /proc/cpuinfo)"
echo "cpu=$(sed -n 's/^\\(model name\\|Hardware\\|Model\\)[[:space:]]*: //p' /proc/cpuinfo | head -n 1)"
echo "board=$(getprop ro.product.model 2>/dev/null || tr -d '\\000' </proc/device-tree/model 2>/dev/null)"
echo "system=$(getprop ro.build.fingerprint 2>/dev/null ||
sed -n 's/^PRETTY_NAME=//p' /etc/os-release 2>/dev/null | tr -d '"')"
digest() {{ (sha256sum "$1" 2>/dev/null || cksum "$1") | cut -c 1-12; }}
echo "tool=$(digest {tool})"
for t in {evaluation}; do [ -x "$t" ] && echo "${{t##*/}}=$(digest "$t")"; done; :
"""
"""The tools tell no version of themselves: their bytes are their identity. Android has `getprop`, boards of
Arm a device tree, a PC neither."""

_CPUS: Final = re.compile(r"[1-9][0-9]{0,3}")

_SENSORS: Final = """\
for z in /sys/class/thermal/thermal_zone*; do [ -r $z/temp ] && echo "$(cat $z/type): $(cat $z/temp)"; done
for b in /sys/class/power_supply/*; do
[ -r $b/capacity ] && echo "battery: $(cat $b/capacity) % $(cat $b/status)"; done
dumpsys battery 2>/dev/null |
sed -n 's/^ *level: \\([0-9]*\\)$/battery: \\1 %/p; s/^ *temperature: \\(-*[0-9]*\\)$/battery: \\100/p'; :
"""
"""The kernel has thousandths of a degree; Android, which hides the kernel's battery, tenths."""

_ZONE: Final = re.compile(r"(.{1,60}): (-?\d{1,6})")
_BATTERY: Final = re.compile(r"battery: (\d{1,3} %.{0,40})")

_HOTTEST: Final = 150.0
"""Degrees Celsius above which a zone is no temperature of a device that works: drivers report errors so."""

SANDBOX_TEXT: Final = (
    "the runner only copies files and reads text: it may connect, read what its agent may, and write its own "
    "folder; the model runs on the device"
)


def described_each(attached: Sequence[Attached]) -> list[Device | str]:
    """Return each device, or why it does not answer."""
    # All at once, since each that hangs takes `LIST_S`. A pool cannot be made without a worker.
    with ThreadPoolExecutor(max_workers=max(1, len(attached))) as pool:
        return list(pool.map(_described_or_why, attached))


def _described_or_why(attached: Attached) -> Device | str:
    try:
        return described(Remote(attached), within_s=LIST_S)
    except (LostError, RefusedError, OSError) as error:
        return str(error)


def described(remote: Remote, within_s: float | None = None) -> Device:
    """Return the device as it is now. Raises `LostError`, and `RefusedError` where it has no tool."""
    attached = remote.attached
    paths = () if attached.evaluation is None else (f"{attached.evaluation}/{name}" for name in EVALUATION)
    asked = {"tool": shlex.quote(attached.benchmark_model), "evaluation": shlex.join(paths)}
    answer = remote.run(_DESCRIBE.format(**asked), within_s=within_s)
    if answer.code == _NOT_THERE:
        raise RefusedError(f"{remote.what}: {answer.text}")
    # At the first = alone: what a device says may have more of them.
    said = dict(line.split("=", 1) for line in answer.text.splitlines() if "=" in line)
    told = said.get("tool") and said.get("machine") and _CPUS.fullmatch(said.get("cpus", ""))
    if answer.code != 0 or not told:
        raise RefusedError(f"{remote.what} does not describe itself: {answer.text[:200]!r}")
    release = attached.version or "of an unknown release"
    others = {name: f"{release} ({said[name]})" for name in EVALUATION if said.get(name)}
    name = said.get("board") or said.get("cpu") or said["machine"]
    return Device(
        device_id=attached.name,
        kind="cpu",
        api=attached.kind,
        name=name,
        delegates=attached.delegates,
        exclusion_group=_group(attached),
        environment={
            **{key: said.get(key, "") for key in ("machine", "kernel", "system", "cpus", "cpu", "board")},
            "measuring": TOOL,
            TOOL: f"{release} ({said['tool']})",
            **others,
        },
        facts={"tool": TOOL, "tool_path": attached.benchmark_model, SANDBOX_FACT: SANDBOX_TEXT},
    )


def _group(attached: Attached) -> str:
    """Return a path for the address, not for the name, which two farms may choose otherwise. What a host is
    called means another one in another `ssh_config`.
    """
    config = attached.ssh_config if isinstance(attached, OverSsh) else None
    digest = hashlib.sha256(f"{attached.address}\0{config or ''}".encode()).hexdigest()
    # For people alone: the digest tells two addresses apart that become alike here.
    readable = re.sub(r"[^A-Za-z0-9._@-]", "-", attached.address)[:100]
    return f"{attached.kind}-{readable}-{digest[:12]}"


@dataclass(frozen=True, slots=True)
class Sensed:
    """Temperatures in degrees Celsius by zone, and the batteries' charge and state in words."""

    zones: dict[str, float]
    batteries: tuple[str, ...]

    @property
    def hottest(self) -> float | None:
        """The highest temperature; None without a sensor."""
        return max(self.zones.values(), default=None)

    def __str__(self) -> str:
        parts = [f"{name} {value:g} °C" for name, value in self.zones.items()]
        return ", ".join([*parts, *(f"battery {text}" for text in self.batteries)]) or "none"


def sensed(remote: Remote) -> Sensed:
    """Read the device's temperatures and batteries. Raises `LostError` and `RefusedError`."""
    lines = remote.need(_SENSORS, "reading the sensors").splitlines()
    zones = ((m[1], int(m[2]) / 1000.0) for line in lines if (m := _ZONE.fullmatch(line)))
    batteries = tuple(m[1] for line in lines if (m := _BATTERY.fullmatch(line)))
    return Sensed({name: value for name, value in zones if 0.0 < value < _HOTTEST}, batteries)
