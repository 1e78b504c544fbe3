"""The ranges of integer inputs by their use, in small graphs and in the zoo's networks."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.graph import Subgraph
from runtime.model.integer_inputs import integer_ranges
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.skeleton import restore_structure
from tests.runtime.demo_models import REPOSITORY
from tests.runtime.models import Builder

I32, F32 = np.int32, np.float32


def graph_of(b: Builder, outputs: list[int]) -> Subgraph:
    return read_model(b.write(outputs)).subgraphs[0]


def looked_up(rows: int, dtype: type = I32, then: Op | None = None) -> Subgraph:
    b = Builder()
    ids = b.input(dtype, (1, 3), name="ids")
    flat, out = b.tensor(dtype, (3,)), b.tensor(F32, (3, 2))
    b.operator(Op.RESHAPE, [ids, b.constant(np.array([3], I32))], [flat])
    b.operator(Op.EMBEDDING_LOOKUP, [flat, b.constant(np.zeros((rows, 2), F32))], [out])
    if then is None:
        return graph_of(b, [out])
    other = b.tensor(dtype, (3,))
    b.operator(then, [flat, b.constant(np.ones(3, dtype))], [other])
    return graph_of(b, [out, other])


def test_ids_name_the_rows_of_their_table() -> None:
    assert integer_ranges(looked_up(7)) == {"ids": (0, 6)}


def test_ids_that_an_operator_computes_with_have_no_known_range() -> None:
    assert integer_ranges(looked_up(7, then=Op.ADD)) == {}


def test_the_rows_count_where_a_mask_is_made_of_the_ids_too() -> None:
    b = Builder()
    ids = b.input(I32, (3,), name="ids")
    mask, out = b.tensor(bool, (3,)), b.tensor(F32, (3, 2))
    b.operator(Op.NOT_EQUAL, [ids, b.constant(np.array(1, I32))], [mask])
    b.operator(Op.GATHER, [b.constant(np.zeros((9, 2), F32)), ids], [out], {"axis": 0})
    assert integer_ranges(graph_of(b, [mask, out])) == {"ids": (0, 8)}


@pytest.mark.parametrize(
    ("opcode", "left_out"),
    [
        (Op.LESS, lambda x: [x]),
        (Op.LESS, lambda x: [-1, x]),
        (Op.EMBEDDING_LOOKUP, lambda x: [x]),
        (Op.GATHER, lambda x: [-1, x]),
    ],
    ids=["compared alone", "compared with nothing", "rows of nothing", "gathered from nothing"],
)
def test_an_operand_that_the_file_leaves_out_tells_no_range(opcode, left_out) -> None:
    b = Builder()
    ids, out = b.input(I32, (3,), name="ids"), b.tensor(F32, (3, 2))
    b.operator(opcode, left_out(ids), [out])
    assert integer_ranges(graph_of(b, [out])) == {}


ZOO = {
    "hf_distil_whisper_small_no_cache": {"serving_default_args_1": (0, 51863)},
    "hf_distilbert": {"serving_default_args_0": (0, 30521), "serving_default_args_1": (0, 1)},
    "hf_tinyroberta_squad2": {"serving_default_args_0": (0, 50264), "serving_default_args_1": (0, 1)},
    "torchaudio_conformer": {"serving_default_args_1": (0, 400)},
    "torchvision_mobilenet_v2__static_int8": {},
}


@pytest.mark.parametrize("name", ZOO)
def test_ids_masks_and_lengths_of_published_networks(name: str) -> None:
    skeleton = (REPOSITORY / f"examples/zoo/{name}.skel").read_bytes()
    graph = read_model(restore_structure(skeleton)).subgraphs[0]
    assert integer_ranges(graph) == ZOO[name]
