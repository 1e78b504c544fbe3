"""Which layers are enqueued together: small ones that follow one another, by one group."""

from itertools import pairwise

import numpy as np
import pytest

from runtime.delegates.gpu.backends.opencl.backend import OpenClBackend
from runtime.delegates.gpu.backends.opencl.recording import OpenClRecording
from runtime.delegates.gpu.compiled import CompiledGraph
from runtime.delegates.gpu.options import Options
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.delegates.gpu.models import ModelBuilder, whole

ROWS, SMALL, LARGE = 4, 16, 2048
CHANNELS = (SMALL, SMALL, SMALL, LARGE, SMALL, SMALL, SMALL)
"""Channels behind each product, and before the first one: two small ones, two large ones, two small ones."""


@pytest.fixture
def products(tmp_path):
    """A chain of products on the device, and their weights."""
    generator = np.random.default_rng(5)
    shapes = [(out, given) for given, out in pairwise(CHANNELS)]
    weights = [generator.normal(0, shape[1] ** -0.5, shape).astype(np.float32) for shape in shapes]
    build = ModelBuilder()
    value = build.input(ROWS, CHANNELS[0])
    for weight in weights:
        value = build.op(Op.FULLY_CONNECTED, [value, build.constant(weight)], (ROWS, len(weight)))
    backend = OpenClBackend.open(0, tmp_path)
    if not backend.capabilities.shares_one_kernel:
        pytest.skip("this device has a kernel for each layer")
    return CompiledGraph(
        whole(build.build(value)), backend, Options(tuning="none", persistent="off")
    ), weights


def test_small_layers_that_follow_one_another_are_one_enqueue_and_large_ones_have_their_own(products):
    graph, weights = products
    entries = graph.watch.next()
    assert [(entry.first, entry.last) for entry in entries] == [(0, 2), (2, 3), (3, 4), (4, 6)]
    assert graph.schedule == "4 enqueued kernels over 6 layers"
    x = np.random.default_rng(6).normal(size=(ROWS, SMALL)).astype(np.float32)
    found = np.empty((ROWS, SMALL), np.float32)
    graph.invoke([x], [found])
    for weight in weights:
        x = x @ weight.T
    np.testing.assert_allclose(found, x, rtol=1e-4, atol=1e-5)


def test_joined_layers_wait_for_no_other_threads(products, monkeypatch):
    """One group runs them, so that runs of other models need not stand behind them."""
    graph, _ = products
    assert not any(entry.is_persistent for entry in graph.watch.next())
    monkeypatch.setattr(OpenClRecording, "_enqueue_in_turn", lambda *_: pytest.fail("waits for its turn"))
    graph.invoke([np.zeros((ROWS, SMALL), np.float32)], [np.empty((ROWS, SMALL), np.float32)])
