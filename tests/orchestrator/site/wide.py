"""A campaign of six columns that strains a page: long reasons, many flags, wrong outputs, long names."""

from __future__ import annotations

from dataclasses import replace

from agent.wire.measurement import Latency, Quality
from orchestrator.results.records import CellRecord
from tests.orchestrator.site.records import (
    HOST,
    NIGHT,
    POCL,
    HandMadeFarm,
    campaign,
    cell,
    measurement,
    partial,
    processes,
    reason,
)

NAME = "six columns"
CUDA = "rack-3/opencl-nvidia-h200-0"
COLUMNS = (
    ("litert", HOST), ("cpu", HOST), ("gpu", POCL), ("gpu", CUDA), ("gpu-fp16", CUDA), ("openvino", HOST),
)  # fmt: skip
MODELS = {
    "mobilenet_v2_1.0_224": 12.2,
    "hand_landmark_full": 6.1,
    "efficientnet_lite0_with_a_rather_long_name_int8": 24.8,
    "whisper_tiny_encoder": 412.0,
    "yolox_nano_416": 55.0,
}
REASON = (
    "operator 17 RESIZE_BILINEAR: tensor 'model/up_sampling2d_1/resize/ResizeBilinear' (1x26x26x256): "
    "half_pixel_centers together with align_corners is not defined; convert the model with "
    "half_pixel_centers=False, or run it on the delegate cpu"
)
FLAGS = (
    "process 1: preempted: 812 involuntary switches/s on 2 CPUs",
    "process 2: preempted: 641 involuntary switches/s on 2 CPUs",
    "process 3: preempted: 705 involuntary switches/s on 2 CPUs",
    "process 2: drift: +7.3% from the first sample to the last",
    "process 1: autocorrelated: lag-1 autocorrelation 0.61",
)
FACTOR = {"litert": 1.0, "cpu": 4.2, "gpu": 0.8, "gpu-fp16": 0.04, "openvino": 0.9}
"""Each delegate's latency over the one of litert."""


def wide_farm() -> HandMadeFarm:
    """Five models in six columns, of which one column refuses everything for one reason."""
    raw = {}
    cells: list[CellRecord] = []
    for place, (model, base) in enumerate(MODELS.items()):
        for delegate, device in COLUMNS:
            samples = processes(f"{model}{delegate}{device}", base * FACTOR[delegate], samples=40)
            made = _cell(model, delegate, device, place, samples)
            raw[made.cell_id] = samples
            cells.append(made)
    names = tuple(dict.fromkeys(delegate for delegate, _ in COLUMNS))
    record = campaign(NAME, NIGHT, tuple(MODELS), names, "litert")
    return HandMadeFarm((record,), {record.campaign_id: tuple(cells)}, raw)


def _cell(model: str, delegate: str, device: str, place: int, samples) -> CellRecord:
    if delegate == "openvino":
        return cell(
            NAME, model, delegate, device, "unsupported",
            reason=reason("no_device", "openvino is not installed: install the extra 'openvino'"),
        )  # fmt: skip
    made = measurement(samples, delegate, 42)
    if (delegate, device) == ("gpu", POCL):
        made = made.model_copy(
            update={
                "delegation": partial(42, *((i, "RESIZE_BILINEAR", REASON) for i in range(3, 23))),
                "warnings": FLAGS,
                "settings": made.settings | {"processes": "3"},
                "quality": Quality(
                    void=("process 1: preempted: 812 involuntary switches/s on 2 CPUs",),
                    seen=("clocks", "other processes"),
                    unseen=("temperature: no sensor",),
                ),
            }
        )
    if delegate == "gpu-fp16" and place == 1:
        wrong = measurement(samples, delegate, 42, "fail")
        why = reason("wrong_output", "output 0 'Identity_2' (1x63): relative error 0.42 exceeds 0.0001")
        return cell(NAME, model, delegate, device, "failed", measurement=wrong, reason=why)
    if delegate == "gpu-fp16" and place == 2:
        empty = Latency(**dict.fromkeys(Latency.model_fields, None) | {"missing": {"p50": "not measured"}})
        reported = made.model_copy(update={"latency_ms": empty, "samples": 0, "memory_peak_bytes": 0})
        why = reason("not_delegated", REASON)
        return cell(NAME, model, delegate, device, "failed", measurement=reported, reason=why)
    if delegate == "cpu" and place > 2:
        why = reason("not_delegated", REASON)
        return cell(NAME, model, delegate, device, "unsupported", reason=why)
    return replace(cell(NAME, model, delegate, device, measurement=made), model_bytes=3_500_000)
