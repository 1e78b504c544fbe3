"""Some layers are enqueued together, and end even where there are few cores."""

import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from runtime.delegates.gpu.backends.opencl.backend import OpenClBackend
from runtime.delegates.gpu.backends.opencl.by_address import may_call_addresses
from runtime.delegates.gpu.settings.options import Options
from runtime.delegates.gpu.start.compiled import CompiledGraph
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.delegates.gpu.models import ModelBuilder, whole
from tests.sweeps import rarely

ROWS, SMALL, LARGE = 4, 16, 2048
CHANNELS = (SMALL, SMALL, SMALL, LARGE, SMALL, SMALL, SMALL)
"""Channels behind each product, and before the first one: two small ones, two large ones, two small ones."""

CPUS = len(os.sched_getaffinity(0))
LIMIT_S = 300
"""Most seconds of a process that runs ten times, without which a hang would be one of all tests."""


@pytest.fixture
def products(tmp_path):
    """Compile a chain of products on the device; return it with their weights."""
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
    graphs = [
        CompiledGraph(whole(build.build(value)), backend, Options(tuning="none", persistent=how))
        for how in ("off", "auto")
    ]
    return graphs, weights


def test_small_layers_that_follow_one_another_are_one_enqueue_and_large_ones_have_their_own(products):
    (graph, shared), weights = products
    entries = graph.entries
    assert not any(entry.is_persistent for entry in entries)
    assert [(entry.first, entry.last) for entry in entries] == [(0, 2), (2, 3), (3, 4), (4, 6)]
    assert graph.schedule == "4 enqueued kernels over 6 layers"
    assert [(entry.first, entry.last) for entry in shared.entries] == [(0, 6)]
    x = np.random.default_rng(6).normal(size=(ROWS, SMALL)).astype(np.float32)
    found = np.empty((ROWS, SMALL), np.float32)
    graph.invoke([x], [found])
    for weight in weights:
        x = x @ weight.T
    np.testing.assert_allclose(found, x, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cores", "groups"),
    [
        rarely("one CPU from the start", 1),
        rarely("threads on one CPU", CPUS),
        rarely("64 groups", 64),
        ("64 groups on one CPU", 64),
        rarely("64 threads", 64),
        rarely("a thread that gets what others leave", CPUS),
        ("all threads stopped half of the time", CPUS),
    ],
)
def test_shared_layers_give_the_same_bits_and_end_where_there_are_few_cores(cores, groups, backend, folder):
    if not may_call_addresses(backend.capabilities):
        pytest.skip("this device has a kernel for each layer")
    command = [sys.executable, "-m", "tests.runtime.delegates.gpu.few_cores", cores, folder]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) == groups
