"""Every row against LiteRT: a few seeded examples of each type in the default suite, 200 in the long one.

LiteRT runs in a worker process. Where an example ends it, or LiteRT refuses it, that is counted and printed,
not the end of the suite; a row fails where LiteRT ran none of its examples, or refused more than it may.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.model.schema import TensorType
from tests.oracle import LiteRtError, OracleDiedError, run_litert
from tests.runtime.ops.cases import CPU, Case, run_ours
from tests.runtime.ops.properties.rows import Row, all_rows
from tests.runtime.ops.properties.tally import Tally

ROWS = all_rows()
SEEDED_EXAMPLES = 3
EXHAUSTIVE_EXAMPLES = 200


def compare_once(row: Row, tensor_type: TensorType, data: st.DataObject, tally: Tally) -> None:
    example = row.example(data.draw, tensor_type)
    try:
        expected = run_litert(example.model, example.inputs, row.resolver)
    except OracleDiedError as error:
        tally.deaths.append(str(error))
        return
    except LiteRtError as error:
        tally.refusals.append(error.text.strip().splitlines()[-1])
        return
    found = run_ours(Case(str(row), example.model, example.inputs), CPU, example.runs)
    assert len(found) == len(expected)
    assert example.compare is not None
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        example.compare(ours, theirs, example.inputs)
    tally.compared += 1


def run_row(
    row: Row, tensor_type: TensorType, examples: int, record_property: Callable[[str, object], None]
) -> None:
    tally = Tally()

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        compare_once(row, tensor_type, data, tally)

    run()
    tally.judge(row, tensor_type, record_property)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_seeded_examples_match_litert(row, record_property):
    for tensor_type in row.types:
        run_row(row, tensor_type, SEEDED_EXAMPLES, record_property)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("row", "tensor_type"), [(r, t) for r in ROWS for t in r.types], ids=str)
def test_examples_of_every_type_match_litert(row, tensor_type, record_property):
    run_row(row, tensor_type, EXHAUSTIVE_EXAMPLES, record_property)
