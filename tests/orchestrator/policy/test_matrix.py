from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.wire.messages import MissingDelegate, Reason, ReasonCode
from agent.wire.plan import MeasurePlan
from orchestrator.errors import UsageError
from orchestrator.manifest.campaign import CellRule, DeviceSelector
from orchestrator.policy.matrix import MAX_CELLS, NO_DEVICE, expand
from tests.orchestrator.asked import CPU, GPU, POCL, asked, model_files

ALL = {"cpu": {}, "gpu": {}, "litert": {}}


def test_every_delegate_meets_every_device_that_hosts_it():
    specs = expand(asked(("a", "b"), ALL), model_files("a", "b"), [CPU, POCL, GPU])
    assert [(s.model, s.delegate, s.target) for s in specs] == [
        ("a", "cpu", "host-cpu"),
        ("a", "gpu", "pocl-0"),
        ("a", "gpu", "gpu-0"),
        ("a", "litert", "host-cpu"),
        ("b", "cpu", "host-cpu"),
        ("b", "gpu", "pocl-0"),
        ("b", "gpu", "gpu-0"),
        ("b", "litert", "host-cpu"),
    ]
    assert [s.position for s in specs] == list(range(8))
    assert not any(s.obstacle for s in specs)


def test_a_kind_that_nobody_hosts_gives_one_cell_per_model_with_the_agents_reason():
    missing = [MissingDelegate(kind="gpu", reason="no OpenCL platform found")]
    specs = expand(asked(("a",), ALL), model_files("a"), [CPU], missing)
    (gpu,) = [s for s in specs if s.delegate == "gpu"]
    assert gpu.target == NO_DEVICE
    assert gpu.obstacle is not None
    assert gpu.obstacle.code is ReasonCode.NO_DEVICE
    assert gpu.obstacle.text == "no OpenCL platform found"


def test_a_kind_that_only_unselected_devices_host_says_who_does():
    selector = DeviceSelector(kind="gpu")
    specs = expand(asked(("a",), {"cpu": {}}, devices=(selector,)), model_files("a"), [CPU, GPU])
    (cell,) = specs
    assert cell.target == NO_DEVICE
    assert cell.obstacle is not None
    assert cell.obstacle.text == (
        "no device of the campaign's `devices: [{kind: gpu}]` hosts delegate kind 'cpu'; these do: host-cpu"
    )


def test_an_interface_that_a_device_lacks_is_told_and_the_others_are_columns():
    its = {name: {} for name in ("gpu", "gpu/opencl", "gpu/vulkan")}
    devices = [POCL.model_copy(update={"delegate_environments": its}), GPU]
    columns = {f"gpu-{one}": {"kind": "gpu", "backend": one} for one in ("vulkan", "metal")}
    specs = expand(asked(("a",), {"gpu": {}, **columns}), model_files("a"), devices)
    lacking = "pocl-0 is not reached through metal on its host, but by opencl, vulkan"
    assert {(one.delegate, one.target): one.obstacle for one in specs if one.target == "pocl-0"} == {
        ("gpu", "pocl-0"): None,
        ("gpu-vulkan", "pocl-0"): None,
        ("gpu-metal", "pocl-0"): Reason(code=ReasonCode.NO_DEVICE, text=lacking),
    }


def test_selectors_that_match_nothing_are_shown_with_the_devices_there_are():
    selectors = (DeviceSelector(vendor="nvidia"), DeviceSelector(labels={"room": "b"}))
    (cell,) = expand(asked(("a",), {"cpu": {}}, devices=selectors), model_files("a"), [CPU, POCL])
    assert cell.obstacle is not None
    assert cell.obstacle.text == (
        "no device matches the campaign's `devices: [{vendor: nvidia}, {labels: {room: b}}]`; "
        "there are: host-cpu, pocl-0"
    )


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (DeviceSelector(kind="gpu"), {"gpu-0"}),
        (DeviceSelector(vendor="nvidia"), {"gpu-0"}),
        (DeviceSelector(vendor="*pocl*"), {"pocl-0"}),
        (DeviceSelector(name="pocl-*"), {"pocl-0"}),
        (DeviceSelector(name="H200"), {"gpu-0"}),
        (DeviceSelector(labels={"room": "a"}), {NO_DEVICE}),
        (DeviceSelector(kind="cpu", vendor="NVIDIA"), {NO_DEVICE}),
    ],
    ids=str,
)
def test_selectors_choose_by_every_field_given(selector, expected):
    specs = expand(asked(("a",), {"gpu": {}}, devices=(selector,)), model_files("a"), [CPU, POCL, GPU])
    assert {s.target for s in specs} == expected


def test_a_device_matched_by_two_selectors_is_used_once():
    both = (DeviceSelector(kind="gpu"), DeviceSelector(name="gpu-0"))
    specs = expand(asked(("a",), {"gpu": {}}, devices=both), model_files("a"), [CPU, POCL, GPU])
    assert [s.target for s in specs] == ["gpu-0"]


def test_an_unknown_device_name_is_refused_with_a_suggestion():
    campaign = asked(devices=(DeviceSelector(name="host-cpo"),))
    with pytest.raises(UsageError, match="'host-cpo'; did you mean 'host-cpu'"):
        expand(campaign, model_files("m"), [CPU, POCL])


def test_excluded_cells_are_listed_with_their_rule():
    campaign = asked(("big-llm", "net"), ALL, exclude=(CellRule(model="*-llm", delegate="cpu"),))
    specs = expand(campaign, model_files("big-llm", "net"), [CPU, POCL])
    excluded = [s for s in specs if s.obstacle]
    assert [(s.model, s.delegate) for s in excluded] == [("big-llm", "cpu")]
    assert excluded[0].obstacle is not None
    assert excluded[0].obstacle.code is ReasonCode.EXCLUDED
    assert excluded[0].obstacle.text == "by the rule {model: *-llm, delegate: cpu}"
    everything = expand(asked(("net",), ALL, exclude=(CellRule(),)), model_files("net"), [CPU, POCL])
    assert {s.obstacle.text for s in everything if s.obstacle} == {"by the rule {model: *}"}


def test_where_rules_include_cells_the_others_are_listed_as_left_out():
    rules = (CellRule(model="big-*", delegate="gpu"), CellRule(model="net"))
    campaign = asked(("big-llm", "net"), ALL, include=rules, exclude=(CellRule(delegate="litert"),))
    specs = expand(campaign, model_files("big-llm", "net"), [CPU, POCL])
    assert {(s.model, s.delegate) for s in specs if s.obstacle is None} == {
        ("big-llm", "gpu"),
        ("net", "gpu"),
        ("net", "cpu"),
    }
    assert {(s.model, s.delegate): s.obstacle.text for s in specs if s.obstacle} == {
        ("big-llm", "cpu"): "no rule of `include` chooses it",
        ("big-llm", "litert"): "no rule of `include` chooses it",
        ("net", "litert"): "by the rule {delegate: litert}",
    }
    assert {s.obstacle.code for s in specs if s.obstacle} == {ReasonCode.EXCLUDED}


def test_too_many_cells_are_refused_before_they_are_made():
    names = tuple(f"m{i}" for i in range(MAX_CELLS // 3 + 1))
    with pytest.raises(UsageError, match=r"10002 cells; a campaign has at most 10000"):
        expand(asked(names, ALL), (), [CPU, POCL])


@given(
    st.lists(st.sampled_from("abcd"), min_size=1, unique=True),
    st.lists(st.sampled_from(["cpu", "gpu", "litert", "npu"]), min_size=1, unique=True),
    st.lists(st.sampled_from([CPU, POCL, GPU]), unique_by=lambda d: d.device_id),
)
def test_the_matrix_is_complete_and_its_keys_differ(models, kinds, devices):
    specs = expand(asked(tuple(models), {kind: {} for kind in kinds}), model_files(*models), devices)
    per_kind = {kind: max(1, sum(kind in d.delegates for d in devices)) for kind in kinds}
    assert len(specs) == len(models) * sum(per_kind.values())
    assert len({s.key for s in specs}) == len(specs)


def test_the_key_depends_on_everything_that_was_asked_and_on_nothing_else():
    def key(**changes):
        options = {"threads": changes.get("threads", 1)}
        campaign = asked(("a",), {"cpu": options}, plan=changes.get("plan"), name=changes.get("name", "x"))
        return expand(campaign, model_files("a"), [CPU])[0].key

    assert key() == key(name="y")
    assert key() != key(threads=2)
    assert key() != key(plan=MeasurePlan(max_blocks=8))
