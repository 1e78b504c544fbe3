"""`farm tune`: its columns, its order, and one real run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from orchestrator.cli.tune import Objective, product_of, ranked
from orchestrator.errors import UsageError
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
        (["gpu"], {"precision": ["fp33"]}, "--precision fp33: gpu takes fp32, fp16, bf16, int8"),
        (["gpu"], {"threads": ["two"]}, "--threads two: gpu takes whole numbers"),
        (["cpu"], {}, "there is nothing to choose from"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_anything_is_measured(kinds, axes, said):
    with pytest.raises(UsageError, match=said):
        product_of(kinds, axes)


def test_the_best_is_first_and_a_wrong_or_missing_figure_last():
    fast, slow, wrong = cell("m", "a", p50=1.0), cell("m", "b", p50=2.0), cell("m", "c", verdict="fail")
    none = replace(fast, delegate="d", measurement=None)
    order = [one.delegate for one in ranked([wrong, slow, none, fast], Objective.P50)]
    assert order[:2] == ["a", "b"]
    assert set(order[2:]) == {"c", "d"}


@pytest.mark.exhaustive
def test_a_real_run_recommends_an_entry_of_a_campaign_file(shell: Shell):
    model = shell.write("unary.tflite", unary_model())
    told = shell.farm("tune", str(model), "--delegates", "cpu,litert", "--threads", "1,2", "--json").json()
    ((name, entry),) = yaml.safe_load(told["recommended"]).items()
    assert name in [row["column"] for row in told["columns"]]
    assert told["columns"][0]["column"] == name
    assert entry["kind"] in ("cpu", "litert")
    assert " as fast as " in told["over_runner_up"]
