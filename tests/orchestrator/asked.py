"""Campaigns and devices as values, for tests of policy and of the farm."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from agent.wire.messages import Device
from agent.wire.plan import MeasurePlan
from orchestrator.manifest.campaign import Campaign, CellRule, DelegateEntry, DeviceSelector, ModelEntry

CPU = Device(
    device_id="host-cpu",
    kind="cpu",
    api="host",
    name="AMD EPYC",
    vendor="AMD",
    delegates=("cpu", "litert"),
    exclusion_group="host",
    environment={"cpu": "epyc"},
    labels={"room": "a"},
)
POCL = Device(
    device_id="pocl-0",
    kind="cpu",
    api="opencl",
    name="PoCL",
    vendor="The pocl project",
    delegates=("gpu",),
    exclusion_group="host",
    environment={"driver": "3.1"},
)
GPU = Device(
    device_id="gpu-0",
    kind="gpu",
    api="opencl",
    name="H200",
    vendor="NVIDIA",
    delegates=("gpu",),
    exclusion_group="gpu-0",
    environment={"driver": "550.90"},
)


@dataclass(frozen=True)
class ModelOnDisk:
    id: str
    sha256: str
    size_bytes: int = 10
    unreachable: str | None = None


def model_files(*names: str) -> list[ModelOnDisk]:
    return [ModelOnDisk(name, sha256(name.encode()).hexdigest()) for name in names]


def asked(
    models: tuple[str, ...] = ("m",),
    delegates: dict[str, dict[str, Any]] | None = None,
    *,
    name: str = "test",
    devices: tuple[DeviceSelector, ...] = (),
    exclude: tuple[CellRule, ...] = (),
    include: tuple[CellRule, ...] = (),
    baseline: str | None = None,
    reuse: str = "same-fingerprint",
    plan: MeasurePlan | None = None,
    soft_limit_s: float = 900.0,
    priority: int = 0,
    shared: bool = False,
) -> Campaign:
    """Build a campaign. `delegates`: name -> options; the option `kind` is the delegate kind, else the name
    is.
    """
    chosen = delegates or {"cpu": {}}
    plan = plan or MeasurePlan()
    return Campaign(
        name=name,
        level="quick",
        labels={},
        models=tuple(
            ModelEntry(id=m, source=f"{m}.tflite", plan=plan, soft_limit_s=soft_limit_s) for m in models
        ),
        delegates=tuple(
            DelegateEntry(d, options.get("kind", d), {k: v for k, v in options.items() if k != "kind"})
            for d, options in chosen.items()
        ),
        devices=devices,
        shared=shared,
        exclude=exclude,
        include=include,
        baseline_delegate=baseline,
        reuse=reuse,
        manifest_sha256=sha256(repr((name, models, chosen, reuse)).encode()).hexdigest(),
        priority=priority,
    )
