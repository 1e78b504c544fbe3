"""Delegates of other packages in a campaign file: their options are those that their descriptors declare."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.manifest import delegates
from orchestrator.manifest.campaign import Campaign
from orchestrator.manifest.load import load_manifest
from orchestrator.manifest.problems import ManifestError
from runtime.delegates.descriptor import DelegateDescriptor, Option
from runtime.delegates.registry import ENTRY_POINT_GROUP


def load(folder: Path, delegate: str) -> Campaign:
    path = folder / "models.yaml"
    path.write_text(
        f"version: 1\ncampaign: c\nmodels:\n  - {{id: a, source: a.tflite}}\ndelegates:\n  f: {delegate}\n"
    )
    return load_manifest(path)


def mistakes(folder: Path, delegate: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        load(folder, delegate)
    return [problem.text for problem in caught.value.problems]


def foreign_kind(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    """Entry points `foreign` that name `values`, beside the installed ones."""
    points = [EntryPoint("foreign", value, ENTRY_POINT_GROUP) for value in values]

    monkeypatch.setattr(delegates, "entry_points", lambda group: [*entry_points(group=group), *points])
    for cached in (
        delegates._points,
        delegates.known_kinds,
        delegates.default_kinds,
        delegates.declared_options,
        delegates._descriptor,
    ):
        monkeypatch.setattr(delegates, cached.__name__, cached.__wrapped__)


FOREIGN = DelegateDescriptor(
    name="foreign",
    implementation="nowhere:Nothing",
    options={
        "depth": Option(value_type=int, minimum=1, maximum=8, help="How deep."),
        "ratio": Option(value_type=float, minimum=0, help="How much."),
        "mode": Option(value_type=str, choices=("calm", "eager"), help="How."),
        "note": Option(value_type=str, help="What for."),
        "strict": Option(value_type=bool, help="How exactly."),
    },
)


def test_the_options_of_a_foreign_kind_are_read_as_its_descriptor_declares_them(tmp_path, monkeypatch):
    foreign_kind(monkeypatch, "foreign_package:DESCRIPTOR")
    monkeypatch.setitem(sys.modules, "foreign_package", SimpleNamespace(DESCRIPTOR=FOREIGN))
    line = "{kind: foreign, depth: [1, 8], ratio: 0.5, mode: eager, note: 3.10, strict: true}"
    entries = load(tmp_path, line).delegates
    assert [entry.name for entry in entries] == ["f-1", "f-8"]
    assert entries[1].options == {"depth": 8, "ratio": 0.5, "mode": "eager", "note": "3.10", "strict": True}


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("dept: 2", "unknown option 'dept' of delegate kind 'foreign'; did you mean 'depth'?"),
        (
            "threads: 2",
            "unknown option 'threads' of delegate kind 'foreign'; known: depth, mode, note, ratio,",
        ),
        ("depth: 9", "expected a whole number at least 1 at most 8, found 9"),
        ("mode: lazy", "unknown mode 'lazy'; known: calm, eager"),
        ("strict: 1", "expected true or false, found a whole number '1'"),
    ],
)
def test_an_option_that_a_foreign_kind_does_not_declare_is_refused(option, said, tmp_path, monkeypatch):
    foreign_kind(monkeypatch, "foreign_package:DESCRIPTOR")
    monkeypatch.setitem(sys.modules, "foreign_package", SimpleNamespace(DESCRIPTOR=FOREIGN))
    (mistake,) = mistakes(tmp_path, f"{{kind: foreign, {option}}}")
    assert said in mistake


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (("nowhere.at_all:X",), "nowhere.at_all:X cannot be loaded: No module named 'nowhere'"),
        (("json:loads",), "json:loads cannot be loaded: 'function' object has no attribute 'options'"),
        (
            ("json:loads", "json:dumps"),
            "it is registered twice (json:dumps, json:loads); uninstall all but one",
        ),
    ],
)
def test_a_kind_whose_package_is_broken_is_a_mistake_of_the_line_that_uses_it(
    values, said, tmp_path, monkeypatch
):
    foreign_kind(monkeypatch, *values)
    assert load(tmp_path, "{kind: cpu}").delegates[0].kind == "cpu"
    (mistake,) = mistakes(tmp_path, "{kind: foreign}")
    assert f"delegate kind 'foreign' cannot be used here: {said}" in mistake


def test_a_submission_without_delegates_takes_those_of_the_farm(monkeypatch):
    foreign_kind(monkeypatch, "foreign_package:DESCRIPTOR")
    assert {"litert-gpu", "openvino", "foreign"} <= set(delegates.known_kinds())
    monkeypatch.setitem(sys.modules, "foreign_package", SimpleNamespace(DESCRIPTOR=FOREIGN))
    assert delegates.default_kinds() == ("cpu", "gpu", "litert"), "what others install adds no column"


AXES = (
    "{kind: gpu, precision: [fp32, fp16], quantized: [true, false], serialization: [on, off], "
    "min_nodes_per_partition: [1, 2]}"
)


def test_every_list_is_an_axis_with_short_labels_and_litert_s_names_are_kept_as_our_own(tmp_path):
    columns = {entry.name: entry.options for entry in load(tmp_path, AXES).delegates}
    assert len(columns) == 16
    assert columns["f-fp16-2-no-quantized-off"] == {
        "precision": "fp16",
        "enable_quantization": False,
        "cache_dir": "",
        "min_nodes_per_partition": 2,
    }
    spelled = "{kind: gpu, gpu_backend: gl, is_precision_loss_allowed: 1, inference_priority1: MIN_LATENCY}"
    (entry,) = load(tmp_path, spelled).delegates
    assert entry.options == {"backend": "opengl", "precision_loss_allowed": 1, "memory": "fast"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "{kind: gpu, precision: [fp32, fp16], precision_loss_allowed: false}",
            "leave out one of the two; or leave the column out: `exclude: [{delegate: f-fp16}]`",
        ),
        (
            "{kind: gpu, backend: vulkan, wait_type: active}",
            "f: wait_type 'active' needs the backend opencl, not vulkan; use passive there",
        ),
        (
            "{kind: gpu, wait_type: do_not_wait}",
            "use passive, and `measure: {throughput: …}` for several runs",
        ),
        ("{kind: gpu, kept_plans: 2}", "the inputs of a measured run have one; leave it out, and give each"),
        ("{kind: gpu, gpu_backend: cl, backend: vulkan}", "options 'backend' and 'gpu_backend' contradict"),
        (f"{{kind: cpu, threads: {list(range(1, 10_001))}}}", "expected 1 to 32 items, found 10000"),
        (
            f"{{kind: gpu, threads: {list(range(1, 33))}, deadline_ms: {list(range(1, 33))}}}",
            "threads (32) x deadline_ms (32) make 1024 columns; an entry makes at most 256: shorten a list",
        ),
    ],
)
def test_columns_that_cannot_be_measured_are_one_mistake_of_the_entry(line, said, tmp_path):
    (mistake,) = mistakes(tmp_path, line)
    assert said in mistake


def test_a_column_whose_options_exclude_each_other_may_be_left_out(tmp_path):
    line = "{kind: gpu, backend: [opencl, vulkan], wait_type: [passive, active]}"
    assert len(load(tmp_path, f"{line}\nexclude: [{{delegate: f-vulkan-active}}]").delegates) == 4
    assert len(load(tmp_path, f"{line}\ninclude: [{{delegate: 'f-*-passive'}}]").delegates) == 4
