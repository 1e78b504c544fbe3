"""A preparation that takes long says so, and what it is doing."""

import logging
import os
import re
import subprocess
import sys
import time

import pytest

from runtime.delegates.gpu.backends.opencl.backend import OpenClBackend
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.keep import progress
from runtime.model.schema import BuiltinOperator as Op
from tests import needs
from tests.needs import REPOSITORY
from tests.runtime.delegates.gpu.models import ModelBuilder, whole


def test_a_long_block_is_announced_with_what_it_is_doing(monkeypatch, caplog):
    monkeypatch.setattr(progress, "PATIENCE_S", 0.02)
    with caplog.at_level(logging.WARNING), progress.announced("compiling 3 kernels") as announcement:
        deadline = time.monotonic() + 60
        while "gpu delegate: compiling 3 kernels, for " not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        announcement.doing = "kernel 2 of 3"
        while "gpu delegate: kernel 2 of 3, for " not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    said = caplog.text
    time.sleep(0.1)
    assert caplog.text == said


def test_a_short_block_is_silent(caplog):
    with progress.announced("compiling 3 kernels"):
        pass
    assert caplog.messages == []


def test_compiling_is_announced(monkeypatch, caplog):
    monkeypatch.setattr(progress, "PATIENCE_S", 0.001)
    build = ModelBuilder()
    model = build.build(build.op(Op.TANH, [build.input(1, 3, 5, 17)], (1, 3, 5, 17)))
    compile_kernels = OpenClBackend.compile
    announcement = re.compile(r"gpu delegate: compiling \d+ kernels for .+, for \d+ s now")

    def announced_first(self, source, progress):
        """Compile once a line has come: a process that knows the kernels already is over before the first."""
        deadline = time.monotonic() + 60
        while not announcement.search(caplog.text) and time.monotonic() < deadline:
            time.sleep(0.001)
        return compile_kernels(self, source, progress)

    monkeypatch.setattr(OpenClBackend, "compile", announced_first)
    with caplog.at_level(logging.WARNING):
        delegate = GpuDelegate({"cache_dir": ""})
        delegate.compile(whole(model)).close()
    assert announcement.search(caplog.text)


@pytest.mark.exhaustive
def test_another_driver_compiles_each_kernel_by_itself_before_the_first_run():
    """Mesa's rusticl on its software rasteriser, the second OpenCL driver."""
    script = (
        "import numpy as np\n"
        "from tests.runtime.delegates.gpu import test_delegate as small\n"
        "x = small.normal(1, 3, 6, 5)\n"
        "found = small.run(small.mixed_model(), x, device='rusticl')\n"
        "for found, wanted in zip(found, small.mixed_reference(x), strict=True):\n"
        "    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)\n"
    )
    driver = {"OCL_ICD_VENDORS": str(needs.rusticl()), "RUSTICL_ENABLE": "llvmpipe"}
    environment = {**os.environ, **driver, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", script], env=environment, cwd=REPOSITORY, check=True, timeout=600)
