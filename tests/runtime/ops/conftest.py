"""The backends that every operator case runs on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.needs import absent
from tests.runtime.ops.cases import CPU, Backend


@pytest.fixture(params=["cpu", "opencl:fp32"])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    if request.param == "cpu":
        yield CPU
        return
    from runtime import load_delegate
    from runtime.errors import DeviceError

    folder = tmp_path_factory.getbasetemp() / "opencl-cache"
    options = {"precision": "fp32", "tuning": "none", "persistent": "off", "cache_dir": str(folder)}
    try:
        delegate = load_delegate("gpu", options)
    except DeviceError as error:
        absent(f"no OpenCL device: {error}")
    yield Backend(request.param, delegate)
