"""LiteRT's own times of the operators, from the profiler of the library that its package brings."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from runtime.common.profile import LiteRtNode, LiteRtTimes, OperatorTime
from runtime.delegates.peers import litert_profile
from runtime.delegates.peers.litert_profile import litert_times
from runtime.model.schema import BuiltinOperator as Op
from runtime.tools.verbs import model_verbs
from tests.runtime.models import Builder

SIDE = 48
BRANCHES = ((5, 64), (1, 8), (3, 32))
"""Extents and channels of convolutions side by side, of 1 : 200 in their work."""


def branched(name: str = "x") -> bytes:
    """Build three convolutions of one input, the cheapest in the middle; that one is reversed."""
    b = Builder()
    x = b.input(np.float32, (1, SIDE, SIDE, 16), name=name)
    made = []
    for extent, channels in BRANCHES:
        weights = b.constant(np.ones((channels, extent, extent, 16), np.float32))
        bias = b.constant(np.zeros(channels, np.float32))
        y = b.tensor(np.float32, (1, SIDE, SIDE, channels))
        b.operator(Op.CONV_2D, [x, weights, bias], [y], {"padding": 0, "stride_w": 1, "stride_h": 1})
        made.append(y)
    turned = b.tensor(np.float32, (1, SIDE, SIDE, 8))
    lengths = b.constant(np.array([2], np.int32))
    b.operator(Op.REVERSE_SEQUENCE, [made[1], lengths], [turned], {"seq_dim": 1, "batch_dim": 0})
    total = b.tensor(np.float32, (1, SIDE, SIDE, sum(channels for _, channels in BRANCHES)))
    b.operator(Op.CONCATENATION, [made[2], made[0], turned], [total], {"axis": 3})
    return b.write([total])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "branched.tflite"
    path.write_bytes(branched())
    return path


def asked(path, *arguments):
    return CliRunner().invoke(model_verbs(), ["profile", str(path), "--delegate", "cpu", *arguments])


def test_litert_tells_each_operators_time_in_the_order_of_the_file(file):
    found = asked(file, "--rounds", "3", "--threads", "1", "--litert", "--json")
    assert found.exit_code == 0, found.output
    litert = json.loads(found.stdout)["litert"]
    assert litert["threads"] == 1
    assert [n["operator"] for n in litert["nodes"] if n["name"] == "REVERSE_SEQUENCE"] == [3]
    products = [n["name"] for n in litert["nodes"] if "IGEMM" in n["name"] or "GEMM" in n["name"]]
    assert [name.partition(" (")[0] for name in products] == ["Convolution", "Fully Connected", "Convolution"]
    big, small, middle = (litert["operators_ns"][str(index)] for index in range(3))
    assert big > middle > small


def test_the_operators_of_a_run_take_no_longer_than_the_run(file):
    """In one round, since a sum of medians may be longer than the median of the sums."""
    found = asked(file, "--rounds", "1", "--threads", "1", "--litert", "--json")
    litert = json.loads(found.stdout)["litert"]
    assert 0 < sum(n["time_ns"] for n in litert["nodes"]) <= litert["run_ns"]


def test_the_text_puts_them_beside_the_operators(file):
    text = asked(file, "--rounds", "1", "--threads", "1", "--litert").stdout
    rows = [line.split() for line in text.splitlines() if line.split()[1:2] == ["CONV_2D"]]
    assert [float(row[-1]) > 0 for row in rows if len(row) == 6] == [True] * 3
    assert "with XNNPACK, 1 thread, by its own profiler" in text
    assert [line for line in text.splitlines() if len(line) > 100] == []


def test_what_litert_does_not_run_has_its_reason(file, monkeypatch):
    shaped = litert_times(file, {0: np.zeros((1, 8, 8, 16), np.float32)}, 1, 1)
    assert shaped == "LiteRT: it runs the shapes that the file declares, and these inputs have others"
    file.write_bytes(b"no model")
    assert str(litert_times(file, {}, 1, 1)).startswith("LiteRT: ")
    monkeypatch.setattr(litert_profile, "find_spec", lambda _: None)
    assert "not installed" in str(litert_times(file, {}, 1, 1))


def test_a_form_that_has_no_place_for_them_is_refused(file):
    found = asked(file, "--litert", "--format", "csv")
    assert (found.exit_code, found.stderr) == (2, "error: --litert goes with --format text or with --json\n")


def test_a_kind_of_other_counts_tells_no_operator():
    """Two ADD of the file and three nodes: one of them is the part of another operator."""
    names = ("ADD", "CONV_2D", "ADD", "CONV_2D")
    operators = [OperatorTime(i, n, "", "cpu", 1, 1, 1, 0, is_divided=False) for i, n in enumerate(names)]
    kinds = ("Add (ND)", "Convolution (NHWC, F32) IGEMM", "Add (ND)", "Fully Connected (NC, F32) GEMM")
    nodes = [LiteRtNode(name, None, i) for i, name in enumerate((*kinds, "Add (ND)"))]
    assert LiteRtTimes("2.3.0", 1, 9, tuple(nodes)).by_operator(operators) == {1: 1, 3: 3}
