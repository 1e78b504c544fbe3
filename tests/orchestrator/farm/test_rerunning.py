"""A pair of cells that is measured anew asks for both settings in blocks; what cannot be says why."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from agent.wire.messages import AgentHello, MissingDelegate
from agent.wire.plan import InputSpec, MeasurePlan
from orchestrator.farm.again.rerunning import Rerun, plan_rerun
from orchestrator.manifest.load import parse_manifest
from orchestrator.policy.matrix import expand
from orchestrator.results.records import CellRecord
from orchestrator.sources.store import Store
from tests.orchestrator.asked import CPU, POCL, model_files
from tests.orchestrator.cli.records import cell

PLAN = MeasurePlan(min_blocks=3, max_blocks=4, slice_runs=7)
HELLO = AgentHello(agent_id="a", host="h", version="0", devices=(CPU, POCL))
KEY = ("net", "cpu", "host-cpu", "quick")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def row(store: Store, options: dict[str, Any], **changes: Any) -> CellRecord:
    """Build a cell of `cpu` on the host's processor, whose model is in the store."""
    sha256 = store.put(io.BytesIO(b"a model"), "model").sha256
    plain = replace(cell("net", "cpu", device="host-cpu"), model_sha256=sha256, plan=PLAN)
    return replace(plain, **({"delegate_options": options, "device_name": CPU.name} | changes))


def keyed(*cells: CellRecord) -> dict[tuple[str, ...], CellRecord]:
    return {(c.model, c.delegate, c.device, c.level): c for c in cells}


Asked: TypeAlias = tuple[str, str, str, dict[str, Any], tuple[int, int]]
"""Model, delegate, device, options, and between how many blocks."""


def cells_of(rerun: Rerun, present: AgentHello = HELLO) -> list[Asked]:
    """Return the cells of a rerun's document, as the matrix of a submission has them."""
    campaign = parse_manifest(yaml.safe_dump(dict(rerun.document)).encode(), "rerun")
    assert (campaign.reuse, campaign.baseline_delegate) == ("never", rerun.first)
    specs = expand(campaign, model_files(*(m.id for m in campaign.models)), present.devices)
    return [
        (s.model, s.delegate, s.target, dict(s.delegate_options), (s.plan.min_blocks, s.plan.max_blocks))
        for s in specs
        if s.obstacle is None
    ]


def test_both_settings_of_a_cell_become_two_delegates_of_one_campaign(store: Store) -> None:
    first, second = row(store, {"threads": 1}), row(store, {"threads": 2})
    (made,), left_out = plan_rerun(keyed(first), keyed(second), HELLO, store)
    assert left_out == ()
    assert cells_of(made) == [
        ("net", "cpu-a", "host-cpu", {"threads": 1}, (6, 6)),
        ("net", "cpu-b", "host-cpu", {"threads": 2}, (6, 6)),
    ]
    measured = [replace(first, delegate="cpu-a"), replace(second, delegate="cpu-b")]
    before, after = made.sides(measured)
    assert (before[KEY], after[KEY]) == tuple(measured)


def test_only_the_pairs_are_measured_and_each_pair_of_settings_has_its_own_baseline(store: Store) -> None:
    def sides(**options: Any) -> list[CellRecord]:
        on_gpu = {"delegate": "gpu", "delegate_kind": "gpu", "device_name": POCL.name}
        return [
            row(store, {"threads": options["threads"]}),
            row(store, {"precision": options["precision"]}, device=POCL.device_id, **on_gpu),
            row(store, {"threads": options["threads"]}, model="odd[1]", plan=PLAN),
        ]

    first, second = sides(threads=1, precision="fp32"), sides(threads=2, precision="fp16")
    reruns, left_out = plan_rerun(keyed(*first), keyed(*second), HELLO, store)
    assert left_out == ()
    assert [[found[:3] for found in cells_of(one)] for one in reruns] == [
        [(m, d, "host-cpu") for m in ("net", "odd[1]") for d in ("cpu-a", "cpu-b")],
        [("net", d, POCL.device_id) for d in ("gpu-a", "gpu-b")],
    ]


def test_a_model_is_measured_on_the_devices_of_its_pairs_alone(store: Store) -> None:
    other = CPU.model_copy(update={"device_id": "other-cpu", "exclusion_group": "other"})
    hello = HELLO.model_copy(update={"devices": (CPU, other)})
    pairs = [
        (row(store, {"threads": 1}, **where), row(store, {"threads": 2}, **where))
        for where in ({"model": "a[x]"}, {"model": "b", "device": "other-cpu"})
    ]
    (made,), _ = plan_rerun(keyed(*(a for a, _ in pairs)), keyed(*(b for _, b in pairs)), hello, store)
    assert {found[:3:2] for found in cells_of(made, hello)} == {("a[x]", "host-cpu"), ("b", "other-cpu")}


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({}, {"model_sha256": "e" * 64}, "two model files"),
        ({}, {"device_name": "Another CPU"}, "and a block is on one device"),
        ({"inputs": {"x": InputSpec(seed=1)}}, {}, "other inputs in before than in after"),
        ({}, {"plan": None}, "an older release"),
        ({"device_name": "Old"}, {"device_name": "Old"}, "another device by now: Old then, AMD EPYC now"),
        ({"device": "rack-9"}, {"device": "rack-9"}, "device rack-9 is not present"),
        ({"delegate_kind": "npu"}, {}, "delegate npu is not installed here"),
        ({"delegate_kind": "openvino"}, {}, "host-cpu has no delegate openvino now: no such package"),
        ({"model_sha256": "e" * 64}, {"model_sha256": "e" * 64}, "is not in the store"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_in_blocks_says_why(
    store: Store, first: dict[str, Any], second: dict[str, Any], words: str
) -> None:
    missing = (MissingDelegate(kind="openvino", reason="no such package"),)
    hello = HELLO.model_copy(update={"missing": missing})
    sides = {KEY: row(store, {"threads": 1}, **first)}, {KEY: row(store, {"threads": 2}, **second)}
    reruns, (left_out,) = plan_rerun(*sides, hello, store)
    assert reruns == ()
    assert left_out.key == KEY
    assert words in left_out.why


def test_equal_settings_are_measured_as_two_delegates(store: Store) -> None:
    side = {KEY: row(store, {"threads": 1})}
    (made,), left_out = plan_rerun(side, side, HELLO, store)
    assert left_out == ()
    assert [found[1] for found in cells_of(made)] == ["cpu-a", "cpu-b"]


def test_a_cell_of_one_side_alone_is_left_out(store: Store) -> None:
    cells = keyed(row(store, {"threads": 1}))
    assert [one.why for one in plan_rerun(cells, {}, HELLO, store)[1]] == ["not in after"]
    assert [one.why for one in plan_rerun({}, cells, HELLO, store)[1]] == ["not in before"]
