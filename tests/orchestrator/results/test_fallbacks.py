"""Fallbacks by reason, with the option of the delegate that would change each."""

from __future__ import annotations

import pytest

from agent.wire.measurement import Fallback
from orchestrator.results.wording import grouped
from runtime.api.interpreter import Interpreter
from runtime.delegates.registry import load_delegate
from tests.runtime.delegates.gpu.test_fallback import OPTIONS, turned_in_the_middle


def left(*operators: tuple[int, str, str]) -> tuple[Fallback, ...]:
    return tuple(Fallback(index=index, op=op, reason=reason) for index, op, reason in operators)


def test_operators_of_one_reason_are_one_line_whatever_tensor_it_names() -> None:
    small, large = grouped(
        left(
            (3, "ADD", "tensor 7 'a/b': rank 7 exceeds 6"),
            (9, "GATHER", "no OpenCL kernel for this operator"),
            (4, "ADD", "tensor 9 'c': rank 8 exceeds 6"),
            (5, "MUL", "tensor 11 'd': rank 7 exceeds 6"),
        )
    )
    assert (small.count, small.named) == (3, "2 ADD (3\N{EN DASH}4), MUL (5)")
    assert small.reason == "tensor 7 'a/b': rank 7 exceeds 6"
    assert (large.count, large.named, large.option) == (1, "GATHER (9)", "")


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"max_delegated_partitions": 1, "cost_aware_partitioning": False}, "max_delegated_partitions"),
        ({"min_nodes_per_partition": 2, "cost_aware_partitioning": False}, "min_nodes_per_partition"),
        ({"excluded_operators": "FULLY_CONNECTED"}, "excluded_operators"),
        ({"first_delegate_node_index": 2}, "first_delegate_node_index"),
    ],
)
def test_a_reason_that_an_option_would_change_names_it(options: dict, advice: str) -> None:
    delegate = load_delegate("gpu", {**OPTIONS, **options})
    interpreter = Interpreter(model_content=turned_in_the_middle(), experimental_delegates=[delegate])
    said = left(*((one.index, one.op, one.reason) for one in interpreter.delegation.fallbacks))
    (advised,) = {group.option for group in grouped(said)} - {""}
    assert advice in advised


def test_an_estimated_loss_names_the_option_that_ignores_it() -> None:
    reason = (
        "supported, but the model would take an estimated 12 µs longer with its group of 3 operators on "
        "gpu (cost_aware_partitioning)"
    )
    (group,) = grouped(
        left((0, "ADD", reason), (1, "MUL", reason.replace("12", "12").replace("3 op", "4 op")))
    )
    assert (group.count, group.option) == (2, "cost_aware_partitioning: false")
