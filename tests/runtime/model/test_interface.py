"""Inputs and outputs that are read alone are those that a whole reading finds."""

import numpy as np
import pytest

from runtime.errors import ModelFormatError
from runtime.model.interface import load_interface
from runtime.model.reader import load_model
from tests.end_to_end.odd_models import partial_model
from tests.needs import shared_models
from tests.runtime.models import Builder


def same(path):
    found, whole = load_interface(path), load_model(path)
    graph = whole.subgraphs[0]
    for tensors, indices in ((found.inputs, graph.inputs), (found.outputs, graph.outputs)):
        wanted = [graph.tensors[index] for index in indices]
        for one, other in zip(tensors, wanted, strict=True):
            for name in ("index", "name", "type", "shape", "shape_signature", "quantization"):
                assert getattr(one, name) == getattr(other, name)
    assert found.operators == len(graph.operators)
    assert found.signature == next((s for s in whole.signatures if s.subgraph_index == 0), None)


def test_it_is_what_the_whole_reading_finds(tmp_path):
    (tmp_path / "m").write_bytes(partial_model())
    same(tmp_path / "m")


def test_it_is_what_the_whole_reading_finds_in_real_files():
    files = sorted(shared_models().rglob("*.tflite"))
    assert files
    for path in files:
        same(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "the file is empty"), (b"\0" * 64, "identifier is"), (partial_model()[:60], "outside")],
)
def test_a_broken_file_is_named_with_the_place(tmp_path, content, said):
    (tmp_path / "broken").write_bytes(content)
    with pytest.raises(ModelFormatError, match=f"broken: .*{said}"):
        load_interface(tmp_path / "broken")


def test_an_output_that_no_tensor_is_is_named(tmp_path):
    b = Builder()
    b.input(np.float32, (1,))
    (tmp_path / "m").write_bytes(b.write([5]))
    with pytest.raises(ModelFormatError, match=r"model\.subgraphs\[0\]\.outputs: tensor 5 of 1"):
        load_interface(tmp_path / "m")
