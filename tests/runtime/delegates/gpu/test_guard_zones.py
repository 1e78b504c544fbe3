"""No kernel leaves its buffers, as far as these graphs tell; and the guard zones would notice one that did.

`GUARD_ZONES=1 pytest tests/runtime/ops -k opencl -m "exhaustive or not exhaustive"` puts zones around the
buffers of every operator case.
"""

import numpy as np
import pytest

from runtime.delegates.gpu.layout import source
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding
from tests.runtime.delegates.gpu.models import ModelBuilder
from tests.runtime.delegates.gpu.test_delegate import (
    chain_model,
    mixed_model,
    mixed_reference,
    normal,
    run,
)
from tests.runtime.guard_zones import guard_zones


@pytest.fixture
def zones():
    with guard_zones() as runs:
        yield runs


def test_layouts_of_every_kind_stay_inside(zones):
    x = normal(1, 3, 6, 5)
    for actual, expected in zip(run(mixed_model(), x, tuning="none"), mixed_reference(x), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)
    assert zones, "the zones were looked at"
    assert zones[0] > 5, "before, between and behind the buffers"


def test_persistent_kernels_stay_inside(zones):
    assert np.isfinite(run(chain_model(), normal(1, 14, 14, 48), tuning="none", persistent="on")[0]).all()


def broken(monkeypatch, name, old, new):
    """One kernel with another line."""
    intact = source.kernel_source

    def text(file):
        found = intact(file)
        assert file != name or old in found
        return found.replace(old, new) if file == name else found

    monkeypatch.setattr(source, "kernel_source", text)


def test_a_kernel_that_writes_behind_its_output_is_found(zones, monkeypatch):
    stores = "store16(EPILOGUE(v, p, c), to + c)"
    broken(monkeypatch, "reduction/softmax.cl", stores, stores.replace("to + c", "to + c + 16"))
    build = ModelBuilder()
    model = build.build(build.op(Op.SOFTMAX, [build.input(4, 16)], (4, 16), beta=1.0))
    with pytest.raises(AssertionError, match=r"a kernel wrote \d+ bytes, the first 0 behind value 1 't1'"):
        run(model, normal(4, 16), tuning="none")


@pytest.mark.usefixtures("zones")
def test_a_kernel_that_reads_behind_its_input_has_nans_in_its_results(monkeypatch):
    load = "IN_STRIDE + c)"
    broken(monkeypatch, "image/pool.cl", load, load.replace("+ c", "+ c + 16"))
    build = ModelBuilder()
    x = build.input(1, 2, 2, 16)
    options = {"filter_width": 1, "filter_height": 1, "stride_w": 1, "stride_h": 1, "padding": Padding.SAME}
    model = build.build(build.op(Op.AVERAGE_POOL_2D, [x], (1, 2, 2, 16), **options))
    (found,) = run(model, normal(1, 2, 2, 16), tuning="none")
    assert np.isnan(found[0, 1, 1]).all()
    assert not np.isnan(found[0, 0]).any()
