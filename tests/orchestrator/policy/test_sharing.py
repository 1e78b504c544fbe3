"""Equal machines divide the models of a campaign; machines that differ each measure all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from agent.wire.messages import Device
from orchestrator.manifest.campaign import DeviceSelector
from orchestrator.policy.matrix import expand
from tests.orchestrator.asked import CPU, POCL, asked, model_files

NAMES = ("a", "b", "c", "d", "e")
CAMPAIGN = asked(NAMES, {"cpu": {}, "gpu": {}}, shared=True)
BOTH = {name: {"rack-1", "rack-2"} for name in NAMES}


def _machine(host: str, **changes: object) -> list[Device]:
    return [one.model_copy(update={"device_id": f"{host}.{one.device_id}", **changes}) for one in (CPU, POCL)]


def _hosts(devices: list[Device], homes: dict[str, str] | None = None, campaign=CAMPAIGN) -> dict[str, set]:
    found: dict[str, set[str]] = {}
    for cell in expand(campaign, model_files(*NAMES), devices, homes=homes):
        found.setdefault(cell.model, set()).add(cell.target.partition(".")[0])
    return found


def test_each_model_is_whole_on_one_of_two_equal_machines_and_both_have_half_of_them():
    devices = [*_machine("rack-1"), *_machine("rack-2")]
    hosts = _hosts(devices)
    assert all(len(own) == 1 for own in hosts.values())
    assert Counter(next(iter(own)) for own in hosts.values()) == {"rack-1": 3, "rack-2": 2}
    assert len(expand(CAMPAIGN, model_files(*NAMES), devices)) == len(NAMES) * 2
    assert _hosts(devices, campaign=replace(CAMPAIGN, shared=False)) == BOTH


def test_a_model_stays_where_it_was_measured_last_and_new_ones_even_that_out():
    sha256 = {file.id: file.sha256 for file in model_files(*NAMES)}
    homes = {sha256["d"]: "rack-2.pocl-0", sha256["e"]: "rack-2.host-cpu", sha256["a"]: "gone.host-cpu"}
    hosts = _hosts([*_machine("rack-1"), *_machine("rack-2")], homes)
    assert hosts["d"] == hosts["e"] == {"rack-2"}
    assert Counter(next(iter(own)) for own in hosts.values()) == {"rack-1": 3, "rack-2": 2}


def test_machines_that_differ_in_a_name_or_a_label_measure_all_models_each():
    for changes in ({"name": "another"}, {"labels": {"room": "z"}}, {"delegates": ("cpu", "gpu")}):
        both = _hosts([*_machine("rack-1"), *_machine("rack-2", **changes)])
        assert both == BOTH, changes
    assert _hosts([CPU, POCL]) == {name: {"host-cpu", "pocl-0"} for name in NAMES}, "one machine"


def test_of_the_selected_devices_alone():
    campaign = replace(CAMPAIGN, devices=(DeviceSelector(name="rack-2.*"),))
    hosts = _hosts([*_machine("rack-1"), *_machine("rack-2")], campaign=campaign)
    assert hosts == {name: {"rack-2"} for name in NAMES}
