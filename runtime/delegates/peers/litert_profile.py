"""LiteRT's own times of a model's operators, by its profiler, in a process of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from runtime.common.installation import install_command
from runtime.common.profile import LiteRtNode, LiteRtTimes
from runtime.common.system import usable_cpus
from runtime.delegates.base import Array
from runtime.delegates.litert import litert_version

_OPERATOR: Final = 2
"""`kLiteRtOperatorInvokeEvent`: a kernel of LiteRT's own. A delegate's node is such an event, too, unless the
delegate tells its operators, as XNNPACK does."""

_DELEGATED: Final = 8
"""An operator that a delegate profiled."""

_RUN: Final = 16
"""The invoke as a whole."""

_ERROR: Final = re.compile(r"^ERROR: (?:\[[^\]]*\] )?(.+)$", re.MULTILINE)
"""A line of LiteRT's log, behind the place in its source."""

_LIMIT_S: Final = 300
"""Seconds until the process is ended: a hundred runs of a model of three seconds. Chosen."""


def litert_times(
    path: Path, inputs: Mapping[int, Array], threads: int | None, rounds: int
) -> LiteRtTimes | str:
    """Return the medians of LiteRT's times with XNNPACK, or why there are none.

    `inputs`: the model's, by the index of their tensor, in the shapes that the file declares. `threads`: None
    for as many as this process may use.
    """
    package = find_spec("ai_edge_litert")
    if package is None or package.origin is None:
        return f"ai-edge-litert is not installed; {install_command('peers')}"
    library = Path(package.origin).with_name("libLiteRt.so")
    if not library.is_file():
        return f"ai-edge-litert {litert_version()} brings no {library.name}, whose C API has the profiler"
    threads = threads or len(usable_cpus())
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "inputs.npz"
        np.savez(given, allow_pickle=False, **{str(index): values for index, values in inputs.items()})
        answer = _ask([str(library), str(path), str(given), str(threads), str(rounds)])
    if isinstance(answer, str):
        return answer
    return _medians(answer, threads)


def _ask(arguments: Sequence[str]) -> list[list[tuple[int, str, int, int, int]]] | str:
    # Its environment is empty but for where Python finds modules: LiteRT reads none.
    paths = os.pathsep.join(entry for entry in sys.path if Path(entry).is_absolute())
    try:
        ran = subprocess.run(  # noqa: S603 - this interpreter, and a module of this package
            [sys.executable, "-P", "-m", f"{__package__}.litert_profile_child", *arguments],
            env={"PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"LiteRT did not end within {_LIMIT_S} s"
    if ran.returncode:
        how = signal.Signals(-ran.returncode).name if ran.returncode < 0 else f"exit code {ran.returncode}"
        return f"LiteRT ended its process by {how}"
    # Only the last line is the child's answer; LiteRT may have printed in front of it.
    answer = json.loads(ran.stdout.splitlines()[-1])
    if "why" in answer:
        told = _ERROR.findall(ran.stderr.decode(errors="replace")) or [answer["why"]]
        return f"LiteRT: {told[0].rstrip('.')}"
    return list(answer["runs"])


def _medians(runs: list[list[tuple[int, str, int, int, int]]], threads: int) -> LiteRtTimes | str:
    """Return the medians of events that every run has in the same order."""
    kept = [[event for event in run if event[0] in (_OPERATOR, _DELEGATED)] for run in runs]
    whole = [event[2] for run in runs for event in run if event[0] == _RUN]
    if len(whole) != len(runs):
        return "a run has more events than LiteRT's profiler keeps"
    if len({tuple((kind, name) for kind, name, *_ in run) for run in kept}) != 1:
        return "its runs differ in the operators that they execute"
    nodes = []
    for events in zip(*kept, strict=True):
        kind, name, _, node, subgraph = events[0]
        index = node if kind == _OPERATOR and subgraph == 0 else None
        # LiteRT's profiler counts microseconds.
        nodes.append(LiteRtNode(name, index, 1e3 * median(event[2] for event in events)))
    return LiteRtTimes(litert_version() or "unknown", threads, 1e3 * median(whole), tuple(nodes))
