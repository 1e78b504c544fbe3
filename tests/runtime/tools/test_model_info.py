"""`farm model info`: what it says of a file, and what it says where the file is none."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator as Op
from runtime.tools.model_info import delegate_views, model_facts
from tests.needs import REPOSITORY
from tests.runtime.demo_models import demo_model
from tests.runtime.models import Builder
from tests.services.forks import run

ZOO = REPOSITORY / "examples" / "zoo"


def small_network() -> bytes:
    """One convolution of 4 filters 3x3x3 over 8x8, and its 6x6 outputs' sum with a constant."""
    b = Builder()
    x = b.input(np.float32, (1, 8, 8, 3))
    w = b.constant(np.ones((4, 3, 3, 3), np.float32))
    conv, total = b.tensor(np.float32, (1, 6, 6, 4)), b.tensor(np.float32, (1, 6, 6, 4))
    options = {"padding": 1, "stride_w": 1, "stride_h": 1}
    b.operator(Op.CONV_2D, [x, w, -1], [conv], options)
    b.operator(Op.ADD, [conv, b.constant(np.ones(4, np.float32))], [total])
    return b.write([total])


def farm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run("farm", *arguments, cwd=Path.cwd(), env=os.environ)


def test_parameters_and_multiplications_are_counted():
    data = small_network()
    facts = model_facts(read_model(data), len(data))
    assert facts.parameters == 4 * 3 * 3 * 3 + 4
    assert facts.macs == 6 * 6 * 4 * 3 * 3 * 3
    assert {(o.name, o.count) for o in facts.operators} == {("CONV_2D", 1), ("ADD", 1)}
    assert facts.kind == "float32"
    assert [port.shape for port in facts.inputs] == [(1, 8, 8, 3)]


# Operator, shapes of its operands (those after the first are constants unless the input comes third), the
# result's shape, options, and the products that are written out.
MATRIX_OPERATORS = {
    "depthwise": (Op.DEPTHWISE_CONV_2D, [(1, 5, 5, 4), (1, 3, 3, 4)], (1, 3, 3, 4), {}, 3 * 3 * 4 * 9),
    "transposed": (Op.TRANSPOSE_CONV, [None, (2, 3, 3, 4), (1, 5, 5, 4)], (1, 10, 10, 2), {}, 100 * 2 * 9),
    "volume": (Op.CONV_3D, [(1, 4, 5, 5, 2), (2, 3, 3, 2, 6)], (1, 3, 3, 3, 6), {}, 27 * 6 * 36),
    "volume_transposed": (
        Op.CONV_3D_TRANSPOSE,
        [None, (2, 3, 3, 6, 2), (1, 4, 5, 5, 2)],
        (1, 8, 10, 10, 6),
        {},
        100 * 2 * 6 * 18,
    ),
    "dense": (Op.FULLY_CONNECTED, [(2, 8), (4, 8)], (2, 4), {}, 2 * 4 * 8),
    "product": (Op.BATCH_MATMUL, [(3, 2, 8), (3, 8, 4)], (3, 2, 4), {}, 3 * 2 * 4 * 8),
    "adjoint": (Op.BATCH_MATMUL, [(3, 8, 2), (3, 8, 4)], (3, 2, 4), {"adj_x": True}, 3 * 2 * 4 * 8),
    "rnn": (Op.UNIDIRECTIONAL_SEQUENCE_RNN, [(2, 7, 5), (6, 5), (6, 6), (6,)], (2, 7, 6), {}, 14 * 66),
    "two_way": (
        Op.BIDIRECTIONAL_SEQUENCE_RNN,
        [(2, 7, 5), (6, 5), (6, 6), (6,), None, (6, 5), (6, 6), (6,)],
        (2, 7, 6),
        {},
        14 * 132,
    ),
}


@pytest.mark.parametrize("name", MATRIX_OPERATORS)
def test_multiplications_of_every_matrix_operator(name):
    opcode, shapes, result, options, products = MATRIX_OPERATORS[name]
    b = Builder()
    data = next(i for i in (0, 2) if shapes[i] is not None)
    given = [
        -1 if shape is None
        else b.input(np.float32, shape) if i == data
        else b.constant(np.ones(shape, np.float32))
        for i, shape in enumerate(shapes)
    ]  # fmt: skip
    y = b.tensor(np.float32, result)
    b.operator(opcode, given, [y], options)
    facts = model_facts(read_model(b.write([y])), 0)
    assert (facts.macs, facts.kind) == (products, "float32")


def test_mobilenet_v2_has_the_multiplications_of_its_paper():
    """Sandler et al., MobileNetV2, table 4: 300 M multiply-adds, 3.4 M parameters."""
    data = demo_model("torchvision_mobilenet_v2")
    facts = model_facts(read_model(data), len(data))
    assert facts.macs == pytest.approx(300e6, rel=0.01)
    assert facts.parameters == pytest.approx(3.5e6, rel=0.02)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("torchvision_mobilenet_v2", "float32"),
        ("torchvision_mobilenet_v2__static_int8", "integer"),
        ("face_landmark", "fp16 weights"),
    ],
)
def test_the_kind_is_told_from_the_graph(name, kind):
    data = demo_model(name)
    assert model_facts(read_model(data), len(data)).kind == kind


def test_every_installed_delegate_has_a_view(tmp_path):
    path = tmp_path / "net.tflite"
    path.write_bytes(small_network())
    views = {view.delegate: view for view in delegate_views(path, 2)}
    assert views["cpu"].taken == 2
    assert {"gpu", "litert"} <= set(views)
    assert all(view.taken == 2 or view.obstacle or view.reasons for view in views.values())


def test_each_operator_that_stays_on_the_cpu_is_listed_with_the_reason(tmp_path):
    b = Builder()
    x, soft, turned = b.input(np.float32, (1, 2, 3)), *(b.tensor(np.float32, (1, 2, 3)) for _ in range(2))
    b.operator(Op.SOFTMAX, [x], [soft], {"beta": 1.0})
    lengths = b.constant(np.array([2], np.int32))
    b.operator(Op.REVERSE_SEQUENCE, [soft, lengths], [turned], {"seq_dim": 1, "batch_dim": 0})
    path = tmp_path / "net.tflite"
    path.write_bytes(b.write([turned]))
    told = json.loads(farm("model", "info", str(path), "--json").stdout)
    (gpu,) = [view for view in told["delegates"] if view["delegate"] == "gpu"]
    assert [(f["index"], f["op"]) for f in gpu["fallbacks"]] == [(0, "SOFTMAX"), (1, "REVERSE_SEQUENCE")]
    assert "(cost_aware_partitioning)" in gpu["fallbacks"][0]["reason"]
    assert gpu["fallbacks"][1]["reason"] == "no OpenCL kernel for this operator"


def test_the_command_prints_text_and_json(tmp_path):
    path = tmp_path / "net.tflite"
    path.write_bytes(small_network())
    ran = farm("model", "info", str(path), "--no-delegates")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "float32" in ran.stdout
    told = json.loads(farm("model", "info", str(path), "--json").stdout)
    assert told["macs"] == 6 * 6 * 4 * 27
    assert {view["delegate"] for view in told["delegates"]} >= {"cpu", "gpu", "litert"}


def test_a_skeleton_is_looked_into_as_the_model_it_stands_for():
    ran = farm("model", "info", str(ZOO / "torchvision_squeezenet1_1.skel"), "--no-delegates")
    assert ran.returncode == 0
    assert "CONV_2D" in ran.stdout


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "empty"), (b"no model at all", "identifier is"), (None, "No such")]
)
def test_a_file_that_is_no_model_ends_with_2_and_one_line(tmp_path, content, said):
    path = tmp_path / "x.tflite"
    if content is not None:
        path.write_bytes(content)
    ran = farm("model", "info", str(path))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert said in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
