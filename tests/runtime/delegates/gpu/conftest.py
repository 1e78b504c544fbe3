from collections.abc import Callable, Iterator

import pytest

from runtime.api.compiled_model import CompiledModel
from runtime.delegates.gpu.backends.opencl import library
from runtime.delegates.gpu.backends.opencl.backend import OpenClBackend
from tests.runtime.delegates.gpu.caller_models import dense, on_gpu


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates are timed whatever else this machine does."""
    for module in ("choose.tuning", "start.preparing"):
        monkeypatch.setattr(f"runtime.delegates.gpu.{module}.disturbance", lambda _: "")
    monkeypatch.setattr("runtime.delegates.gpu.choose.tuning.paused_share", lambda _: 0.0)


@pytest.fixture(scope="session")
def backend() -> OpenClBackend:
    """Open the machine's first OpenCL device, without a cache."""
    return OpenClBackend.open(0, None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a cache of the delegate's, which the tests of a file share."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module", params=["off", "on"], ids=["enqueued", "persistent"])
def model(request: pytest.FixtureRequest, folder: str) -> Iterator[CompiledModel]:
    """`caller_models.dense` on the device, by either schedule."""
    with on_gpu(dense(), persistent=request.param, cache_dir=folder) as compiled:
        yield compiled


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function after which this process has loaded nothing, like a new one; it has been called once.

    What an earlier test has loaded would neither be compiled again nor written to another cache.
    """

    def forget() -> None:
        monkeypatch.setattr(library, "_addresses", {})
        monkeypatch.setattr(library, "_trials", {})

    forget()
    return forget
