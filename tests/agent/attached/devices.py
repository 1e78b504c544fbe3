"""Devices that hang on an agent's host, with a `benchmark_model` that a test writes."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path

from agent.wire.messages import Device, JobResult, JobStarted
from agent.wire.plan import LabelledData, MeasurePlan
from tests.agent.embedded_agent import BRIEF, EmbeddedAgent, eventually, job, put_model
from tests.services.sshd import Sshd

DEVICE = Device(
    device_id="board", kind="cpu", api="ssh", name="", delegates=(), exclusion_group="x", environment={}
)

PRINTS = """\
Loaded model m.tflite
count=50 first=9 curr=9 min=9 max=900 avg=100.5 std=3 p5=9 median=100 p95=110
Inference timings in us: Init: 1000, First inference: 300, Warmup (avg): 120, Inference (avg): 100.5
"""
DIFF = "Num evaluation runs: 4\nOutputDiff[0]: avg_error=1e-05, std_dev=1e-06"
BLOCKS = BRIEF.model_copy(update={"min_blocks": 2, "max_blocks": 2})


def script(path: Path, text: str) -> None:
    """Write a program of the shell, whole at once."""
    path.with_suffix(".part").write_text(f"#!/bin/sh\n{text}\n")
    path.with_suffix(".part").chmod(0o755)
    path.with_suffix(".part").replace(path)


def labelled(store: Path, data: Path, **asked: object) -> MeasurePlan:
    """Put labelled data into a store; return a plan with it."""
    sha256, size = put_model(store, data)
    return BRIEF.model_copy(update={"labelled": LabelledData(sha256=sha256, size_bytes=size, **asked)})


@dataclass
class Attached:
    """A folder with the tool of a device, and the agent of that device, which is started later."""

    folder: Path
    model: tuple[str, int]
    agent: EmbeddedAgent = field(init=False)

    def tool(self, text: str) -> None:
        """Make a script the device's tool."""
        script(self.folder / "tool", text)

    def says(self, text: str) -> None:
        """Have the tool print a text, whatever it is asked for."""
        (self.folder / "text").write_text(text)
        self.tool(f"cat {self.folder}/text")

    def in_second_block(self, device: str) -> int:
        """Start an attempt; return the id of its second run of the tool, which goes on for ever."""
        one, two = (self.folder / f"{name}-{uuid.uuid4().hex}" for name in ("one", "two"))
        (self.folder / "text").write_text(PRINTS)
        goes_on = f"echo $$ >{two}.part; mv {two}.part {two}; exec sleep 600"
        self.tool(f"[ -e {one} ] && {{ {goes_on}; }}\n: >{one}; cat {self.folder}/text")
        self.agent.send(job(self.model, device=device, plan=BLOCKS))
        self.agent.expect(JobStarted)
        eventually(two.exists, "the second block does not begin")
        return int(two.read_text())


@dataclass
class Board(Attached):
    """Devices behind one `sshd`."""

    server: Sshd

    def arms(self, device: str, plan: object, base: str = "board") -> dict[str, JobResult]:
        """Measure a baseline with the built-in kernels, and XNNPACK's on a device, by turns."""
        base = job(self.model, delegate="builtin", device=base, delegate_kind="litert",
                   delegate_options={"resolver": "builtin"}, plan=plan)  # fmt: skip
        arm = {name: getattr(base, name) for name in ("attempt_no", "epoch", "delegate_kind")}
        arm |= {"attempt_id": uuid.uuid4().hex, "cell_id": "other", "delegate": "litert", "device_id": device}
        both = base.model_dump() | {"arms": [arm], "baseline": base.attempt_id}
        self.agent.send(type(base).model_validate(both))
        results = {r.attempt_id: r for r in (self.agent.expect(JobResult), self.agent.expect(JobResult))}
        return {"base": results[base.attempt_id], "arm": results[arm["attempt_id"]]}

    @property
    def left(self) -> list[str]:
        return [path.name for path in (self.folder / "on board").iterdir()]
