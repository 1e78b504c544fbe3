from collections.abc import Iterator

import pytest

from runtime.delegates.gpu.device import OpenedDevice, open_device


@pytest.fixture(scope="session")
def opened() -> Iterator[OpenedDevice]:
    """The machine's first OpenCL device, without a cache."""
    return open_device(0, None)
