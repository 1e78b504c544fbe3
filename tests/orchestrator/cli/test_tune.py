"""`farm tune`: its columns, its order, and one real run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from agent.wire.measurement import BlockFigure, Quality
from orchestrator.cli.tune import Objective, over_runner_up, product_of, ranked
from orchestrator.errors import UsageError
from orchestrator.results.records import CellRecord
from tests.orchestrator.cli.conftest import Shell
from tests.orchestrator.cli.models import unary_model
from tests.orchestrator.cli.records import cell


def test_the_columns_are_the_product_of_what_each_delegate_has():
    columns = product_of(["litert", "gpu"], {"threads": ["1", "2"], "precision": ["fp32", "fp16"]})
    assert [one.name for one in columns] == [
        "litert-t1", "litert-t2", "gpu-t1-fp32", "gpu-t1-fp16", "gpu-t2-fp32", "gpu-t2-fp16",
    ]  # fmt: skip
    assert columns[-1].options == {"threads": 2, "precision": "fp16"}


@pytest.mark.parametrize(
    ("kinds", "axes", "said"),
    [
        (["gpux"], {}, "unknown delegate kind 'gpux'; did you mean 'gpu'"),
        (["gpu"], {"precision": ["fp33"]}, "of delegate kind 'gpu': unknown precision 'fp33'"),
        (["gpu"], {"threads": ["two"]}, "option 'threads' of delegate kind 'gpu': expected a whole number"),
        (["cpu", "litert"], {"wait_typ": ["active"]}, "none of these delegates has an option 'wait_typ'"),
        (["cpu"], {"threads": [str(n) for n in range(1, 301)]}, r"cpu: threads \(300\) make 300 columns"),
        (["cpu"], {}, "there is nothing to choose from"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_anything_is_measured(kinds, axes, said):
    with pytest.raises(UsageError, match=said):
        product_of(kinds, axes)


def test_the_best_is_first_and_a_wrong_or_missing_figure_last():
    fast, slow, wrong = cell("m", "a", p50=1.0), cell("m", "b", p50=2.0), cell("m", "c", verdict="fail")
    none = replace(fast, delegate="d", measurement=None)
    left = _in_blocks(cell("m", "e", p50=0.5), 0.5, stopped="behind")
    order = [one.delegate for one in ranked([wrong, left, slow, none, fast], Objective.P50)]
    assert order[:3] == ["a", "b", "e"], "one that has left the race is behind those that stayed"
    assert set(order[3:]) == {"c", "d"}


def test_the_runner_up_is_compared_by_the_blocks_that_both_were_in():
    first = _in_blocks(cell("m", "a"), 1.0, 2.0, 3.0, 9.0)
    second = _in_blocks(cell("m", "b"), 1.1, 2.2, 3.3, stopped="behind")
    assert over_runner_up([first, second], Objective.P50).startswith("a is 1.10")
    assert over_runner_up([first, second], Objective.P50).endswith(" as fast as b")
    assert over_runner_up([first, replace(second, status="failed")], Objective.P50) == ""
    assert over_runner_up([first, replace(second, reused_from="another campaign")], Objective.P50) == ""
    assert over_runner_up([first, second], Objective.P99) == ""


def _in_blocks(record: CellRecord, *ms: float, stopped: str = "blocks") -> CellRecord:
    blocks = tuple(BlockFigure(p50_ns=1e6 * one, rounds=7) for one in ms)
    quality = Quality(blocks=len(blocks), alternating=True, stopped=stopped)
    assert record.measurement is not None
    update = {"blocks": blocks, "quality": quality}
    return replace(record, measurement=record.measurement.model_copy(update=update))


@pytest.mark.exhaustive
def test_a_real_run_recommends_an_entry_of_a_campaign_file(shell: Shell):
    model = shell.write("unary.tflite", unary_model())
    told = shell.farm("tune", str(model), "--delegates", "cpu,litert", "--threads", "1,2", "--json").json()
    ((name, entry),) = yaml.safe_load(told["recommended"]).items()
    assert name in [row["column"] for row in told["columns"]]
    assert told["columns"][0]["column"] == name
    assert entry["kind"] in ("cpu", "litert")
    assert " as fast as " in told["over_runner_up"]
