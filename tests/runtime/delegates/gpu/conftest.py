import pytest

from runtime.delegates.gpu.backends.opencl.backend import OpenClBackend


@pytest.fixture(scope="session")
def backend() -> OpenClBackend:
    """The machine's first OpenCL device, without a cache."""
    return OpenClBackend.open(0, None)
