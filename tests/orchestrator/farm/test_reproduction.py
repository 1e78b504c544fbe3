"""The campaign file that measures a row once more asks for the same as the row, and names what differs."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.wire.measurement import Ratio, Tuning
from agent.wire.messages import AgentHello, Device, MissingDelegate
from agent.wire.plan import InputSpec, LabelledData, MeasurePlan
from orchestrator.cli.repro import _text
from orchestrator.errors import FarmError, UsageError
from orchestrator.farm.again.reproduction import Reproduction, reproduction
from orchestrator.manifest.load import parse_manifest
from orchestrator.results.records import CellRecord
from orchestrator.sources.store import Store
from orchestrator.sources.zoo import zoo_models
from tests.orchestrator.asked import CPU, GPU
from tests.orchestrator.cli.records import cell, ended

PLAN = MeasurePlan(
    level="publish", min_blocks=4, max_blocks=9, target=0.011, tunings=3, warmup_runs=0, warmup_seconds=1e-5,
    rounds=3, rounds_fixed=True, slice_runs=8, slice_seconds=1 / 3,
)  # fmt: skip
INPUTS = {
    "ids: [0]": InputSpec(shape=(1, 128), seed=7, low=0, high=30521),
    "mask": InputSpec(shape=(), seed=0),
    "x": InputSpec(low=-1e-9, high=1e20),
}
HELLO = AgentHello(agent_id="a", host="h", version="0", devices=(CPU, GPU))


def row(delegate: str = "cpu", **changes: Any) -> CellRecord:
    plain = cell("net", delegate, device="gpu-0" if delegate == "gpu" else "host-cpu")
    name = GPU.name if delegate == "gpu" else CPU.name
    own: dict[str, Any] = {"cell_id": "fac3034f9ed6f420", "plan": PLAN, "inputs": INPUTS, "device_name": name}
    return replace(plain, **own | changes)


def measured(delegate: str, **changes: Any) -> CellRecord:
    found = row(delegate)
    assert found.measurement is not None
    return replace(found, measurement=found.measurement.model_copy(update=changes))


def made(found: CellRecord, folder: Path, hello: AgentHello | None = HELLO) -> Reproduction:
    return reproduction(found, hello, Store(folder))


def names(found: Reproduction) -> list[tuple[str, str]]:
    return [(one.what, one.name) for one in found.mismatches]


def test_the_file_asks_for_what_the_row_was_measured_with(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    model = store.put(io.BytesIO(b"a model"), "model")
    data = store.put(io.BytesIO(b"labels"), "labels")
    labelled = LabelledData(sha256=data.sha256, size_bytes=6, metric="top5", at_least=0.5)
    there = row(
        model="<b>[red]café: #1",
        model_sha256=model.sha256,
        delegate="gpu-[x]",
        delegate_kind="gpu",
        device="gpu-0",
        device_name=GPU.name,
        delegate_options={"precision": "fp16", "threads": 2, "cost_aware_partitioning": False},
        plan=PLAN.model_copy(update={"labelled": labelled}),
        environment=GPU.environment,
    )
    found = reproduction(there, HELLO, store)
    assert (found.mismatches, found.obstacle) == ((), None)
    campaign = parse_manifest(_text(there, found).encode(), "again.yaml")
    (asked,), (delegate,), (device,) = campaign.models, campaign.delegates, campaign.devices
    assert (asked.id, asked.sha256) == (there.model, model.sha256)
    assert Path(asked.source) == store.path(model.sha256)
    assert (asked.plan, asked.inputs) == (PLAN, INPUTS)
    assert asked.data is not None
    assert (asked.data.sha256, asked.data.metric, asked.data.at_least) == (data.sha256, "top5", 0.5)
    assert (delegate.name, delegate.kind, delegate.options) == ("gpu", "gpu", there.delegate_options)
    assert (device.name, campaign.level, campaign.reuse) == ("gpu-0", "publish", "never")
    assert campaign.name == f"repro-{there.cell_id}"


def test_every_condition_and_version_that_differs_is_listed(tmp_path: Path) -> None:
    there = row(environment={"cpu": "xeon", "kernel": "6.1", "litert": "2.0", "python": "3.11"})
    here = CPU.model_copy(update={"environment": {"cpu": "epyc", "kernel": "6.1", "litert": "2.1"}})
    hello = HELLO.model_copy(update={"devices": (here,)})
    found = made(replace(there, device="rack-3", device_name="A Xeon"), tmp_path, hello)
    assert [str(one) for one in found.mismatches][1:] == [
        "device id: rack-3 there; host-cpu here",
        "device name: A Xeon there; AMD EPYC here",
        "condition cpu: xeon there; epyc here",
        "version litert: 2.0 there; 2.1 here",
        "version python: 3.11 there; not known before a run here",
    ]


def test_a_model_that_is_not_here_is_named_and_still_pinned(tmp_path: Path) -> None:
    found = made(row(environment=CPU.environment), tmp_path)
    assert names(found) == [("model", "net")]
    assert found.obstacle is not None
    assert "put the file beside this campaign file as abababababab.tflite" in found.obstacle
    zoo = next(iter(zoo_models().values()))
    there = row(environment=CPU.environment, model_sha256=zoo.sha256)
    known = made(there, tmp_path)
    assert (known.mismatches, known.obstacle) == ((), None)
    (model,) = parse_manifest(_text(there, known).encode(), "again.yaml").models
    assert (model.source, model.sha256) == (f"zoo:{zoo.name}", zoo.sha256)


@pytest.mark.parametrize(
    ("kind", "hello", "words"),
    [
        ("npu", HELLO, "npu: installed there; not installed here"),
        ("openvino", HELLO, "openvino: on host-cpu there; no device hosts it here"),
        ("gpu", HELLO.model_copy(update={"devices": (CPU,)}), "no OpenCL platform"),
        ("cpu", None, "no agent reports its devices"),
    ],
)
def test_a_delegate_that_cannot_run_here_is_named_with_the_reason(
    tmp_path: Path, kind: str, hello: AgentHello | None, words: str
) -> None:
    if hello is not None:
        missing = (MissingDelegate(kind="gpu", reason="no OpenCL platform found"),)
        hello = hello.model_copy(update={"missing": missing})
    found = made(row(delegate_kind=kind), tmp_path, hello)
    assert found.obstacle is not None
    assert words in found.obstacle
    assert "devices" not in found.document


def test_the_stored_choices_of_the_tuning_are_used_again_on_the_same_device(tmp_path: Path) -> None:
    tunings = tuple(
        Tuning(sha256=str(number) * 64, choices=text, processes=processes)
        for number, (text, processes) in enumerate((("0c41=rows", 1), ("0c41=16", 3), (None, 4)))
    )
    there = measured("gpu", tunings=tunings)
    found = made(there, tmp_path)
    assert found.document["delegates"]["gpu"]["choices"] == "0c41=16"
    assert "tuning choices: 3 outcomes there" in _text(there, found)
    for changed in (
        replace(there, device_name="another card"),
        measured("gpu", tunings=tunings[2:]),
    ):
        again = made(changed, tmp_path)
        assert "choices" not in again.document["delegates"]["gpu"]
        assert ("tuning", "choices") in names(again)
    own = made(replace(there, delegate_options={"choices": "0c41=own"}), tmp_path)
    assert own.document["delegates"]["gpu"]["choices"] == "0c41=own"
    assert ("tuning", "choices") not in names(own)


def test_what_was_measured_beside_the_row_and_data_that_are_gone_are_named(tmp_path: Path) -> None:
    ratio = Ratio(
        against="litert@host-cpu", baseline_id="0" * 12, device_id="host-cpu", median=1.0, ci95=None,
        blocks=3, seed=1,
    )  # fmt: skip
    labelled = LabelledData(sha256="cd" * 32, size_bytes=6)
    there = replace(measured("cpu", ratio=ratio), plan=PLAN.model_copy(update={"labelled": labelled}))
    found = made(there, tmp_path)
    assert {("baseline", "litert@host-cpu"), ("data", "labelled")} <= set(names(found))
    assert "accuracy" not in found.document["models"][0]


def test_no_name_of_a_device_or_campaign_leaves_its_comment(tmp_path: Path) -> None:
    hostile = "x\nversion: 2\r\u2028campaign: other\x85\x1b[2J"
    there = row(device_name=hostile, campaign=hostile, environment={"cpu": hostile, hostile: "1"})
    text = _text(there, made(there, tmp_path))
    assert parse_manifest(text.encode(), "again.yaml").name == f"repro-{there.cell_id}"
    assert list(yaml.safe_load(text)) == [
        "version", "campaign", "level", "defaults", "models", "delegates", "devices",
    ]  # fmt: skip


def test_a_row_without_a_result_or_a_plan_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no result that could be reproduced: it is unsupported; see"):
        made(ended("net", "cpu", "unsupported", "no_device", "none"), tmp_path)
    with pytest.raises(FarmError, match="it runs an older release"):
        made(row(plan=None), tmp_path)


def test_of_several_devices_the_most_similar_one_is_chosen(tmp_path: Path) -> None:
    def device(name: str, cpu: str) -> Device:
        return CPU.model_copy(update={"device_id": name, "environment": {"cpu": cpu}})

    hello = HELLO.model_copy(update={"devices": (device("a", "old"), device("b", "epyc"), GPU)})
    there = row(device="rack-3", environment={"cpu": "epyc"})
    assert made(there, tmp_path, hello).document["devices"] == [{"name": "b"}]
    assert made(replace(there, device="a"), tmp_path, hello).document["devices"] == [{"name": "a"}]
