"""The check of a device's operators: what differs from the CPU path is found, kept, and not delegated."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.delegates.abilities import Conformance
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.keep import kept_conformance
from runtime.delegates.gpu.layout import source
from runtime.delegates.gpu.planning.planner import GpuPlanner
from runtime.errors import DelegateError
from runtime.tools.operator_check import check_device
from runtime.tools.operator_check.check import PRECISIONS
from runtime.tools.operator_check.matrix import matrix
from runtime.tools.operator_check.rows import model_of

FEW = [row for row in matrix() if row.title in ("CUMSUM", "REVERSE_V2", "ATAN2")]
CUMSUM = model_of([row for row in FEW if row.title == "CUMSUM"])


def options(folder, **more):
    return {"cache_dir": str(folder), "tuning": "none", "cost_aware_partitioning": False, **more}


def faulty(monkeypatch, file, right, wrong):
    """Change the text of a kernel file, as a driver that compiles it wrongly would have it."""
    plain = source.kernel_source

    def changed(name):
        text = plain(name)
        assert name != file or right in text
        return text.replace(right, wrong) if name == file else text

    monkeypatch.setattr(source, "kernel_source", changed)


def left(delegate, model=CUMSUM):
    report = Interpreter(model_content=model, experimental_delegates=[delegate]).delegation
    return {fallback.op: fallback.reason for fallback in report.fallbacks}


def test_every_operator_that_has_kernels_has_a_row_whose_results_tell_something():
    rows = matrix()
    names = {getattr(kind, "name", kind) for kind in GpuDelegate.operator_types()}
    assert {row.title for row in rows} == names
    interpreter = Interpreter(model_content=model_of(rows))
    interpreter.allocate_tensors()
    values = (value for row in rows for value in row.inputs)
    for details, value in zip(interpreter.get_input_details(), values, strict=True):
        interpreter.set_tensor(details["index"], value)
    interpreter.invoke()
    outputs = iter(interpreter.get_output_details())
    for row in rows:
        for _ in row.results:
            found = interpreter.get_tensor(next(outputs)["index"])
            assert np.isfinite(found).all(), row.title
            assert row.title == "FILL" or (found != found.flat[0]).any(), row.title


def test_an_operator_that_a_device_computes_wrongly_is_not_delegated_there(monkeypatch, tmp_path):
    faulty(monkeypatch, "reduction/cumsum_rows.cl", "T total = 0;", "T total = 1;")
    found = check_device("gpu", options(tmp_path), FEW, PRECISIONS[:1])
    assert set(found.agreed) == {"REVERSE_V2", "ATAN2"}
    assert list(found.wrong) == ["CUMSUM"]
    assert found.wrong["CUMSUM"].startswith("fp32: output 'output 0' of input set 0: ")
    delegate = GpuDelegate(options(tmp_path))
    assert left(delegate)["CUMSUM"].startswith("a check of this device found that it differs from the CPU")
    assert not left(delegate, model_of([row for row in FEW if row.title == "ATAN2"]))
    described = delegate.describe()
    assert described["conformance"] == "2 operators agree with the CPU path, 1 do not: CUMSUM"
    assert described["left_to_the_cpu"] == "CUMSUM"
    assert list(left(GpuPlanner(options(tmp_path)))) == ["CUMSUM"]
    assert not left(GpuDelegate(options(tmp_path, conformance="ignored")))
    # Another compiler, or a kernel that was mended: what was found is of the past.
    monkeypatch.setattr(kept_conformance, "own_digest", lambda: "another delegate")
    assert not left(GpuDelegate(options(tmp_path)))


def test_an_operator_whose_kernel_does_not_compile_is_wrong_and_the_others_are_checked(monkeypatch, tmp_path):
    faulty(monkeypatch, "reduction/cumsum_rows.cl", "T total = 0;", "T total = nothing;")
    found = check_device("gpu", options(tmp_path), FEW, PRECISIONS[:1])
    assert set(found.agreed) == {"REVERSE_V2", "ATAN2"}
    assert "CUMSUM" in found.wrong


def test_operators_are_excluded_by_name(tmp_path):
    delegate = GpuDelegate(options(tmp_path, excluded_operators="CUMSUM, Resampler"))
    assert left(delegate) == {"CUMSUM": "the option excluded_operators names it"}
    assert delegate.describe()["left_to_the_cpu"] == "CUMSUM, Resampler"
    with pytest.raises(DelegateError, match=r"'CUMSUN' is no operator .* did you mean 'CUMSUM'"):
        GpuDelegate(options(tmp_path, excluded_operators="CUMSUN"))
    with pytest.raises(DelegateError, match="'conformance' must be one of kept, ignored"):
        GpuDelegate(options(tmp_path, conformance="maybe"))


def test_a_delegate_that_keeps_no_findings_is_not_checked():
    with pytest.raises(DelegateError):
        check_device("litert", {})


@pytest.mark.exhaustive
@pytest.mark.parametrize("kernels", ["cpu", "gpu"])
def test_this_device_computes_every_operator_as_the_cpu_path_does(kernels, tmp_path):
    found = check_device("gpu", options(tmp_path, device_class=kernels))
    assert found == Conformance(tuple(dict.fromkeys(row.title for row in matrix())))
