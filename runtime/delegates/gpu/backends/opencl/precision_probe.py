"""Finds out how a device handles narrow numbers, by programs that compile, run and are compared.

Extensions do not tell: NVIDIA's driver compiles half arithmetic without advertising it, and PoCL's compiler
knows no name for instructions that the processor has. A trial may end its process, so it has one of its own.
"""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from runtime.delegates.gpu.backends.opencl import cl
from runtime.delegates.gpu.backends.opencl.compilers import environment_of_child
from runtime.delegates.gpu.backends.opencl.device import list_devices, shared_context
from runtime.delegates.gpu.backends.opencl.precision_child import NO_CONTEXT, run
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.keep.cache import Cache
from runtime.delegates.gpu.layout.source import kernel_source
from runtime.delegates.gpu.settings.precision import Findings, Trial

_LIMIT_S: Final = 120.0
"""Seconds after which a trial counts as one that never ends. The slowest driver tried took a few seconds for
such a kernel; longer only makes a hanging driver hold up the start."""


def probe_precision(device: cl.Device, described: Capabilities, cache: Cache) -> Findings:
    """Return the device's behaviour with narrow numbers, from the cache or by running every trial."""
    known = kept_findings(described, cache)
    if known is not None:
        return known
    try:
        faults = _run(list_devices().index(device), list(Trial))
    except _NoContextError:
        # The device is for one process alone, which is this one. What a GPU cannot do ends no process.
        context = shared_context(device)
        faults = {trial: run(context, trial) for trial in Trial}
    content = {trial.value: fault for trial, fault in faults.items()}
    cache.write("precision", key_of_findings(described), json.dumps(content).encode())
    return Findings(faults)


def kept_findings(described: Capabilities, cache: Cache) -> Findings | None:
    """Return the findings of an earlier probe of the device; None if there was none. Runs nothing."""
    known = cache.read("precision", key_of_findings(described))
    if known is None:
        return None
    return Findings({Trial(name): fault for name, fault in json.loads(known).items()})


def key_of_findings(described: Capabilities) -> str:
    """Return the name of the findings about a device: another driver or other trials give another one."""
    texts = (described.key, kernel_source("precision_probe.cl"))
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


class _NoContextError(Exception):
    """A process of its own gets no context on the device."""


def _run(index: int, trials: list[Trial]) -> dict[Trial, str]:
    """Return the fault of each trial. One that ends the process is named; the rest get another process."""
    found: dict[Trial, str] = {}
    while len(found) < len(trials):
        waiting = [trial for trial in trials if trial not in found]
        answers, end = _ask(index, waiting)
        found |= answers
        if len(answers) < len(waiting):
            # Answers come in order, so the first trial without one ended the process.
            found[next(trial for trial in waiting if trial not in answers)] = end
    return found


def _ask(index: int, trials: list[Trial]) -> tuple[dict[Trial, str], str]:
    """Return the answers of one process, and how it ended."""
    command = [sys.executable, "-P", "-m", f"{__package__}.precision_child", str(index)]
    command += [trial.value for trial in trials]
    try:
        with tempfile.TemporaryDirectory() as folder:
            ran = subprocess.run(  # noqa: S603 - this interpreter, and a module of this package
                command,
                env=environment_of_child(Path(folder)),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_LIMIT_S,
                check=False,
            )
    except subprocess.TimeoutExpired as error:
        return _answers(error.stdout or b""), f"no end within {_LIMIT_S:g} s"
    except OSError as error:
        return {}, f"its process cannot be started: {error.strerror or error}"
    if ran.returncode == NO_CONTEXT:
        raise _NoContextError
    if ran.returncode < 0:
        return _answers(ran.stdout), f"ends its process by {signal.Signals(-ran.returncode).name}"
    return _answers(ran.stdout), f"ends its process with exit code {ran.returncode}"


def _answers(output: bytes) -> dict[Trial, str]:
    known = {trial.value: trial for trial in Trial}
    lines = (line.partition("\t") for line in output.decode(errors="replace").splitlines())
    return {known[name]: fault for name, tab, fault in lines if tab and name in known}
